"""A queue with its pace: how fast it goes, and when what is ready will have run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ...core import drain as draining
from ...core.depth import DepthSeries
from ...core.drain import Drain
from ...core.gate import Gate, closed
from ...core.rollup import floor
from ...core.series import PairSeries
from ...core.view import PodView, QueueView

if TYPE_CHECKING:
    from ..dashboard import Dashboard

BAR: Final = 300.0  # seconds that one bar of the last hour stands for


class Paced(Struct):
    queue: QueueView
    gates: tuple[Gate, ...]  # what keeps its jobs from being claimed
    pace: tuple[int, ...]  # runs that ended in each step of the last hour, but for the step that runs
    runs: int  # that ended in the last hour, up to now
    drain: Drain
    per_minute: float  # jobs that ended for good, in the last minutes
    pods: tuple[str, ...]  # labels of the live pods that serve it


class Lately(Struct):
    """What the pace of queues is told from: roll-ups of the last hour by the minute, and the depths that were noted of
    late."""

    pairs: Sequence[PairSeries]
    depths: DepthSeries


async def lately(web: Dashboard) -> Lately:
    """Shared with attention and with whatever other page asks in the same moment."""
    history, counts = web.reads.history, web.counts
    pairs, depths = await asyncio.gather(
        counts.get(("pairs", "1h"), lambda: history.tasks(since="1h", step="1m", waiting=False)),
        counts.get(("depth", "15m"), lambda: history.depth(since="15m")),
    )
    return Lately(pairs, depths)


def began(lately: Lately, pods: Iterable[PodView]) -> datetime | None:
    """Since when there is anything to tell a pace from."""
    return draining.began(lately.pairs, [pod.started_at for pod in pods])


def paced(queues: Sequence[QueueView], pods: Sequence[PodView], lately: Lately, now: datetime) -> list[Paced]:
    own, since = _by_queue(lately.pairs), began(lately, pods)
    noted = {each.queue: [(point.at, point.ready) for point in each.points] for each in lately.depths.queues}
    serving: dict[str, list[str]] = {}
    for pod in pods:
        for name in pod.queues if pod.live else ():
            serving.setdefault(name, []).append(pod.label)
    return [
        Paced(
            queue=queue,
            gates=closed(queue, now),
            pace=_pace(own.get(queue.name, ())),
            runs=sum(pair.series.whole.finished for pair in own.get(queue.name, ())),
            drain=draining.drain(queue, _flow(queue, own, noted, now, since), now),
            per_minute=draining.per_minute(own.get(queue.name, ()), now, since),
            pods=tuple(serving.get(queue.name, ())),
        )
        for queue in queues
    ]


def _flow(
    queue: QueueView,
    own: Mapping[str, Sequence[PairSeries]],
    noted: Mapping[str, Sequence[tuple[datetime, int | None]]],
    now: datetime,
    since: datetime | None,
) -> draining.Flow:
    return draining.flow(own.get(queue.name, ()), noted.get(queue.name, ()), queue.ready, now, since)


def _by_queue(pairs: Sequence[PairSeries]) -> dict[str, list[PairSeries]]:
    found: dict[str, list[PairSeries]] = {}
    for pair in pairs:
        found.setdefault(pair.queue, []).append(pair)
    return found


def _pace(pairs: Iterable[PairSeries]) -> tuple[int, ...]:
    bars: dict[float, int] = {}
    for pair in pairs:
        for point in pair.series.points:
            at = floor(point.at.timestamp(), BAR)
            bars[at] = bars.get(at, 0) + point.finished
    return tuple(bars[at] for at in sorted(bars)[:-1])  # the last one has only begun
