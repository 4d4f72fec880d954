"""Demand: how much a pod asks for, and how long it rests when there was nothing.

A claimed job never waits in memory, so a pod asks for no more than it can start at once: the free slots of a queue,
and within them the free places of the executors that its tasks need.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .queue import Queue


class Group(Struct, frozen=True):
    """Tasks that run in one executor, and how many more it can start (None: no limit of its own)."""

    tasks: frozenset[str]
    places: int | None


class Room(Struct, frozen=True):
    """What one queue of a pod has free."""

    queue: str
    slots: int
    running: int
    groups: tuple[Group, ...]
    most: int | None = None  # this pod's share of the cluster's max_workers
    places: int | None = None  # how many more the pod as a whole lets it start; None: as many as it has free


class Portion(Struct, frozen=True):
    """A queue's part of the pod's places, where the pod has a number of them for all its queues together.

    >>> Portion(least=2, weight=3)  # of app.worker(pod_slots=20, portions={"mail": …})
    Portion(least=2, weight=3)
    """

    least: int = 0  # kept free for this queue, whatever the others want
    weight: int = 1  # of the rest, among those that have work


class Ask(Struct, frozen=True):
    """What to claim from one queue: `limit` in all, and from each group of tasks at most its own number."""

    queue: str
    limit: int
    groups: tuple[tuple[frozenset[str], int], ...]


_PLAIN: Final = Portion()


def is_alone(serving: Mapping[str, int]) -> bool:
    """Whether no other pod serves a pod's queues: else the storage has their turns to work at while this one runs its
    jobs, and second turns are only in each other's way."""
    return max(serving.values(), default=1) < 2


def first_pause(serving: Mapping[str, int], jitter: float, chance: float) -> float:
    """How long a pod waits before its first claim: a fleet is not to start as one, and who is alone need not wait. Who
    has not heard who serves its queues cannot know that: perhaps the storage is slow because a fleet has started."""
    return 0.0 if serving and is_alone(serving) else jitter * chance


def most(batch: int, slots: int, overlap: int | None, *, alone: bool) -> int:
    """How much a claim may ask for: half of the slots where there are second turns, or those would find none."""
    has_second = overlap is not None and slots >= 2 * overlap and alone
    return min(batch, slots // 2) if has_second else batch


def threads(slots: int, *, given: int | None, most: int, spare: int) -> int:
    """How many threads a pod may have for plain functions: as many as it has slots, unless a number was given.

    A run that was given up frees its slot, and its thread stays taken. So a pod of few slots has at least `spare`
    threads, the number of given-up runs that a worker bears: else one stuck thread would end a worker of one slot. No
    more run at once for that, and a thread that is never needed is never started."""
    return given or min(most, max(slots, spare))


def share(queue: Queue | None, serving: int, given: int | None = None) -> int | None:
    """This pod's part of the cluster-wide total: what the Balancer has given it, else a fair part, rounded up, so that
    the whole total is used, and never the whole total for a pod that has just come. `serving` pods have a part in it.
    A total that was lowered counts at once."""
    if queue is None or queue.max_workers is None:
        return None
    if given is not None:
        return min(given, queue.max_workers)
    return -(-queue.max_workers // max(1, serving))


def within(rooms: Sequence[Room], slots: int, portions: Mapping[str, Portion], hungry: Container[str]) -> list[Room]:
    """The rooms of the hungry queues, if all queues of the pod together have so many slots.

    What a queue lacks to its least number is kept free for it, hungry or not. The rest goes to those that have work,
    place by place, always to the one that is furthest below what its weight says.
    """
    free = slots - sum(room.running for room in rooms)
    given: dict[str, int] = {}
    wanting: list[tuple[float, int, Room, int]] = []
    common = free
    for room in rooms:
        most = room.slots if room.most is None else min(room.slots, room.most)
        kept = max(0, min(_portion(portions, room).least, most) - room.running)
        common -= kept
        if room.queue in hungry and (ask := _ask(room)) is not None:
            given[room.queue] = min(kept, ask.limit, max(0, free))
            free -= given[room.queue]
            if ask.limit > given[room.queue]:
                wanting.append(_wanting(room, given[room.queue], ask.limit, len(wanting), portions))
    heapq.heapify(wanting)
    while common > 0 and wanting:
        _, place, room, limit = heapq.heappop(wanting)
        given[room.queue] += 1
        common -= 1
        if given[room.queue] < limit:
            heapq.heappush(wanting, _wanting(room, given[room.queue], limit, place, portions))
    return [replace(room, places=given.get(room.queue, 0)) for room in rooms if room.queue in hungry]


def _portion(portions: Mapping[str, Portion], room: Room) -> Portion:
    return portions.get(room.queue, _PLAIN)


def _wanting(
    room: Room, given: int, limit: int, place: int, portions: Mapping[str, Portion]
) -> tuple[float, int, Room, int]:
    """Its place in the line for one more: by how much it has of the common places, for its weight."""
    portion = _portion(portions, room)
    return max(0, room.running + given - portion.least) / portion.weight, place, room, limit


def plan(rooms: Sequence[Room], batch: int) -> tuple[Ask, ...]:
    """What to ask for in this turn. When more is free than a batch holds, every queue gets its part of the batch."""
    asks = [ask for room in rooms if (ask := _ask(room)) is not None]
    total = sum(ask.limit for ask in asks)
    if total <= batch:
        return tuple(asks)
    return tuple(_cut(ask, max(1, ask.limit * batch // total)) for ask in asks)


def rest(next_due: float | None, poll: float, chance: float) -> float:
    """Seconds until the next look, when nothing wakes us: the poll with ±20 % jitter, or sooner if something is known
    to become due before it."""
    pause = poll * (0.8 + 0.4 * chance)
    return pause if next_due is None else min(pause, next_due)


def _ask(room: Room) -> Ask | None:
    free = room.slots if room.most is None else min(room.slots, room.most)
    free -= room.running
    if room.places is not None:
        free = min(free, room.places)
    groups = tuple(
        (group.tasks, free if group.places is None else min(free, group.places))
        for group in room.groups
        if group.tasks and (group.places is None or group.places > 0)
    )
    if free <= 0 or not groups:
        return None
    return Ask(room.queue, min(free, sum(limit for _, limit in groups)), groups)


def _cut(ask: Ask, limit: int) -> Ask:
    return Ask(ask.queue, limit, tuple((tasks, min(most, limit)) for tasks, most in ask.groups))
