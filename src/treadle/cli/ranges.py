"""What `treadle stats` says of more than one chart: one range against another, and how deep queues were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core import compare, depth
from .shared import moment
from .stats import duration, spark

if TYPE_CHECKING:
    from ..core.compare import Against, Difference
    from ..core.depth import DepthPoint, DepthSeries
    from .output import Output


def tell_comparison(out: Output, found: compare.Comparison, against: Against) -> None:
    if out.as_json:
        for pair in found.items:
            out.data(compare.pair_as_json(pair))
        return
    if not found.items:
        out.say("nothing has run in either range")
        return
    columns = ("queue", "task", "runs", "", "bad", "", "wait p95", "", "run p50", "", "run p95", "")
    rows = [
        (
            pair.queue, pair.task,
            str(pair.now.finished), _share(pair.runs),
            _percent(compare.bad_share(pair.now)), _points(pair.bad),
            duration(pair.now.wait.p95), _share(pair.wait_p95),
            duration(pair.now.run.p50), _share(pair.run_p50),
            duration(pair.now.run.p95), _share(pair.run_p95),
        )
        for pair in found.items
    ]  # fmt: skip
    out.table(columns, rows)
    ranges = (moment(each) for each in (found.since, found.until, found.before_since, found.before_until))
    out.say("{} to {} against {} to {} ({})".format(*ranges, against))


def _share(change: Difference) -> str:
    if change.by is None or change.word == "same":
        return change.word
    return f"{change.by:+.0%} {change.word}" if change.by < 9.995 else f"x{change.by + 1:.0f} {change.word}"


def _points(change: Difference) -> str:
    return change.word if change.by is None or change.word == "same" else f"{change.by * 100:+.1f}pp {change.word}"


def _percent(share: float | None) -> str:
    return f"{share:.3g}" if not share else f"{100 * share:.3g}%"


def tell_depth(out: Output, found: DepthSeries) -> None:
    if out.as_json:
        for each in depth.as_json(found)["queues"]:
            out.data({"step": found.step, **each})
        return
    if not any(point.ready is not None for point in found.points):
        out.say("nobody has looked in that time: a worker that leads notes it once a minute")
        return
    columns = ("queue", "ready", "scheduled", "running", "most ready", "ready over time")
    rows = [_depths(each.queue, each.points) for each in found.queues]
    out.table(columns, rows or [_depths("all", found.points)])


def _depths(name: str, points: tuple[DepthPoint, ...]) -> tuple[str, ...]:
    known = [point for point in points if point.ready is not None]
    last = known[-1]
    most = [point.ready or 0 for point in known]
    return (name, str(last.ready), str(last.scheduled), str(last.running), str(max(most)), spark(most, kind=max))
