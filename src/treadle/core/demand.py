"""Demand: how much a pod asks for, and how long it rests when there was nothing.

A claimed job never waits in memory, so a pod asks for no more than it can start at once: the free slots of a queue,
and within them the free places of the executors that its tasks need.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

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


class Ask(Struct, frozen=True):
    """What to claim from one queue: `limit` in all, and from each group of tasks at most its own number."""

    queue: str
    limit: int
    groups: tuple[tuple[frozenset[str], int], ...]


def share(queue: Queue | None, live_pods: int) -> int | None:
    """This pod's part of the cluster-wide total, as long as nobody has handed out exact shares: rounded up, so that
    the whole total is used, and never the whole total for a pod that has just come."""
    if queue is None or queue.max_workers is None:
        return None
    return -(-queue.max_workers // max(1, live_pods))


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
