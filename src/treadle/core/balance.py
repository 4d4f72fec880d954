"""Balance: how the cluster-wide total of a queue is shared among the pods that serve it.

Fair, and sticky: everybody gets the same part, rounded down, and what is left over goes, one each, to those that have
more already. What a pod has no slots for goes to the others. A part that lies unused for a while although work waits
goes to those that use theirs; nobody's part goes where it could not be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from .pod import Pod
from .queue import Queue, QueueStats, gate

UNUSED_FOR: Final = 10.0
# So long is a pod left with what it used, before it is offered its fair part again.
HELD_FOR: Final = 60.0


class Share(Struct, frozen=True):
    """A pod's part of a queue's `max_workers`. None: no part any more, the row goes."""

    queue: str
    pod: str
    share: int | None


class Member(Struct, frozen=True):
    """A pod that serves the queue: the places it has, the part it has now, and, if some of that part was found to lie
    idle, the most that it used."""

    pod: str
    slots: int
    share: int = 0
    used: int | None = None


class Idle(Struct, frozen=True):
    """What is remembered of a share that is not used to the full while work waits: since when, the most that was used
    of it, and when the rest was given to others. Moments are those of the pod's beats, so by the storage's clock."""

    since: float
    used: int
    moved_at: float | None = None


def divide(total: int, members: Sequence[Member]) -> dict[str, int]:
    """The part of each. The sum is the total, or all the slots there are."""
    bounds = {each.pod: each.slots if each.used is None else min(each.slots, each.used) for each in members}
    given = _level(total, bounds, members)
    left = total - sum(given.values())
    if left > 0 and any(each.used is not None for each in members):
        # Those who use theirs have no room for it: then it may as well stay where it was not used.
        room = {each.pod: each.slots - given[each.pod] for each in members}
        for pod, more in _level(left, room, members).items():
            given[pod] += more
    return given


def _level(total: int, bounds: Mapping[str, int], members: Sequence[Member]) -> dict[str, int]:
    """Fill all to the same height, none above its bound; what is left over, one each, to who has the most already."""
    height, left, open_to = 0, total, sum(bound > 0 for bound in bounds.values())
    for bound in sorted(bounds.values()):
        if bound <= height:
            continue
        step = min(bound - height, left // open_to)
        height += step
        left -= step * open_to
        if height < bound:
            break
        open_to = sum(other > height for other in bounds.values())
    given = {pod: min(bound, height) for pod, bound in bounds.items()}
    above = [each for each in members if bounds[each.pod] > height]
    for each in sorted(above, key=lambda each: -each.share)[:left]:  # stable: among equals, the oldest first
        given[each.pod] += 1
    return given


def takes_part(pod: Pod) -> bool:
    """Whether a pod gets shares: it lives, and claims."""
    return pod.live and not pod.is_quiet


def capacity(pod: Pod, queue: str) -> int:
    slots = pod.card.queues.get(queue, 0)
    return slots if pod.card.slots is None else min(slots, pod.card.slots)


def watch(
    idle: Mapping[tuple[str, str], Idle], queues: Iterable[QueueStats], pods: Sequence[Pod]
) -> dict[tuple[str, str], Idle]:
    """What is known of unused shares after one more look, by (queue, pod)."""
    now = max((pod.beat_at for pod in pods), default=0.0)
    seen: dict[tuple[str, str], Idle] = {}
    for stats in queues:
        waits = stats.ready > 0 and gate(stats.queue, now) is None
        for pod in filter(takes_part, pods):
            name = stats.queue.name
            known = idle.get((name, pod.card.id))
            found = _idle(known, pod, name) if waits or (known is not None and known.moved_at is not None) else None
            if found is not None:
                seen[name, pod.card.id] = found
    return seen


def _idle(known: Idle | None, pod: Pod, queue: str) -> Idle | None:
    share = pod.shares.get(queue)
    if share is None or pod.stats is None:
        return None
    if known is not None and known.moved_at is not None:
        return known if pod.beat_at < known.moved_at + HELD_FOR else None
    used = pod.stats.running.get(queue, 0)
    if used >= share:
        return None
    since, most = (pod.beat_at, used) if known is None else (known.since, max(known.used, used))
    return Idle(since, most, pod.beat_at if pod.beat_at >= since + UNUSED_FOR else None)


def changes(
    queues: Iterable[QueueStats], pods: Sequence[Pod], idle: Mapping[tuple[str, str], Idle]
) -> tuple[Share, ...]:
    """What must be written so that every share is as it should be; nothing, if all are."""
    found: list[Share] = []
    wanted: dict[tuple[str, str], int] = {}
    for stats in queues:
        wanted |= _shares(stats.queue, pods, idle)
    for pod in pods:
        id = pod.card.id
        found += [Share(queue, id, None) for queue in pod.shares if (queue, id) not in wanted]
        found += [
            Share(queue, id, share)
            for (queue, of), share in wanted.items()
            if of == id and pod.shares.get(queue) != share
        ]
    return tuple(found)


def _shares(queue: Queue, pods: Sequence[Pod], idle: Mapping[tuple[str, str], Idle]) -> dict[tuple[str, str], int]:
    if queue.max_workers is None:
        return {}
    members: list[Member] = []
    for pod in pods:
        id = pod.card.id
        if queue.name in pod.card.queues and takes_part(pod):
            known = idle.get((queue.name, id))
            used = None if known is None or known.moved_at is None else known.used
            members.append(Member(id, capacity(pod, queue.name), pod.shares.get(queue.name, 0), used))
    return {(queue.name, pod): share for pod, share in divide(queue.max_workers, members).items()}
