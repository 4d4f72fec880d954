"""`treadle stats`: throughput and durations, from the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from .command import Invocation, verb
from .params import DURATION, QUEUE
from .target import with_storage

if TYPE_CHECKING:
    from ..core.series import PairSeries, Point

BARS: Final = "·▁▂▃▄▅▆▇█"
WIDTH: Final = 30


@verb(
    "stats",
    "treadle stats --since 1h",
    "treadle stats --queue mail --task send_mail --since 7d",
    "treadle stats --since 24h --json | jq '{task, p95: .series.whole.run.p95}'",
)
@click.option("--queue", type=QUEUE, help="Of one queue only.")
@click.option("--task", help="Of one task only.")
@click.option("--since", type=DURATION, default="1h", show_default=True, help="How far back.")
@click.option("--step", type=DURATION, help="What one point stands for; whole minutes. Default: about 100 points.")
def stats(call: Invocation, queue: str | None, task: str | None, since: float, step: float | None) -> None:
    """Show how many jobs ended, and how long they waited and ran."""
    from ..core.series import as_json

    try:
        found = with_storage(
            call.config(), lambda app: app.history.tasks(queue=queue, task=task, since=since, step=step)
        )
    except ValueError as error:  # a step that does not fit
        raise click.UsageError(str(error)) from None
    if call.out.as_json:
        for pair in found:
            call.out.data(as_json(pair))
        return
    if not found:
        call.out.say("nothing has run in that time")
        return
    columns = (
        "queue",
        "task",
        "runs",
        "per min",
        "bad",
        "wait p50",
        "p95",
        "run p50",
        "p95",
        "p99",
        "max",
        "runs over time",
    )
    call.out.table(columns, [_row(pair, since) for pair in found])


def _row(pair: PairSeries, since: float) -> tuple[str, ...]:
    whole = pair.series.whole
    return (
        pair.queue,
        pair.task,
        str(whole.finished),
        f"{whole.finished * 60 / since:.3g}",
        _share_of_bad(whole),
        _time(whole.wait.p50),
        _time(whole.wait.p95),
        _time(whole.run.p50),
        _time(whole.run.p95),
        _time(whole.run.p99),
        _time(whole.run.max),
        spark([point.finished for point in pair.series.points]),
    )


def _share_of_bad(whole: Point) -> str:
    bad = sum(whole.outcomes.get(each, 0) for each in ("failed", "retried", "rescued"))
    return f"{100 * bad / whole.finished:.3g}%" if bad else ""


def _time(seconds: float | None) -> str:
    """A duration in three digits: 1.23ms, 45.6s, 2.1h."""
    if seconds is None:
        return ""
    for size, unit in ((3600.0, "h"), (60.0, "m"), (1.0, "s"), (0.001, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds * 1e6:.3g}µs" if seconds else "0"


def spark(counts: Sequence[int], width: int = WIDTH) -> str:
    """The counts as a row of bars, at most `width` of them."""
    size = -(-len(counts) // width) or 1
    sums = [sum(counts[at : at + size]) for at in range(0, len(counts), size)]
    most = max(sums, default=0)
    # A bar for whatever is not nothing: one job in an hour of thousands must be seen.
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in sums) if most else ""
