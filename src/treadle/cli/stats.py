"""`treadle stats`: throughput and durations, from the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from .command import Invocation, verb
from .params import DURATION, QUEUE
from .target import with_storage

if TYPE_CHECKING:
    from ..core.compare import Against
    from ..core.series import PairSeries, Point

BARS: Final = "·▁▂▃▄▅▆▇█"
WIDTH: Final = 30


@verb(
    "stats",
    "treadle stats --since 1h",
    "treadle stats --queue mail --task send_mail --since 7d",
    "treadle stats --since 1h --against yesterday",
    "treadle stats --depth --since 24h",
    "treadle stats --since 24h --json | jq '{task, p95: .series.whole.run.p95}'",
)
@click.option("--queue", type=QUEUE, help="Of one queue only.")
@click.option("--task", help="Of one task only.")
@click.option("--since", type=DURATION, default="1h", show_default=True, help="How far back.")
@click.option("--step", type=DURATION, help="What one point stands for; whole minutes. Default: about 100 points.")
@click.option(
    "--against",
    type=click.Choice(["before", "yesterday", "week"]),
    help="Compare with the same length just before, a day or a week earlier.",
)
@click.option("--depth", is_flag=True, help="How much lay in the queues instead.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for a spreadsheet.")
def stats(
    call: Invocation,
    queue: str | None,
    task: str | None,
    since: float,
    step: float | None,
    against: Against | None,
    depth: bool,
    as_csv: bool,
) -> None:
    """Show how many jobs ended, and how long they waited and ran."""
    from ..core import sheet
    from ..core.series import as_json

    if depth and (task or against or as_csv):
        raise click.UsageError("--depth is of queues: it goes with --queue, --since and --step only")
    if against and step:
        raise click.UsageError("--against has no --step: both ranges are taken as a whole")
    if against or depth:
        _more(call, queue, task, since, step, against, as_csv)
        return

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
    if as_csv:
        call.out.csv(sheet.TIMING, map(sheet.timing, found))
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
    watched = _watched(found, since)
    call.out.table(columns, [_row(pair, watched) for pair in found])


def _more(
    call: Invocation,
    queue: str | None,
    task: str | None,
    since: float,
    step: float | None,
    against: Against | None,
    as_csv: bool,
) -> None:
    from ..core import sheet
    from .ranges import tell_comparison, tell_depth

    try:
        if against is None:
            depths = with_storage(call.config(), lambda app: app.history.depth(queue=queue, since=since, step=step))
            tell_depth(call.out, depths)
            return
        found = with_storage(
            call.config(), lambda app: app.history.compare(queue=queue, task=task, since=since, against=against)
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_csv:
        call.out.csv(sheet.COMPARED, sheet.compared(found))
    else:
        tell_comparison(call.out, found, against)


def _watched(found: Sequence[PairSeries], since: float) -> float:
    """The time that was really watched, in seconds: where all began later than was asked for, from there."""
    from ..core.drain import LEAST_WATCHED

    now = datetime.now(UTC)
    first = min((point.at for pair in found for point in pair.series.points if point.outcomes), default=now)
    return min(since, max(LEAST_WATCHED, (now - first).total_seconds()))


def _row(pair: PairSeries, watched: float) -> tuple[str, ...]:
    whole = pair.series.whole
    return (
        pair.queue,
        pair.task,
        str(whole.finished),
        f"{whole.finished * 60 / watched:.3g}",
        _share_of_bad(whole),
        duration(whole.wait.p50),
        duration(whole.wait.p95),
        duration(whole.run.p50),
        duration(whole.run.p95),
        duration(whole.run.p99),
        duration(whole.run.max),
        spark([point.finished for point in pair.series.points]),
    )


def _share_of_bad(whole: Point) -> str:
    from ..core.rollup import BAD

    bad = sum(whole.outcomes.get(each, 0) for each in BAD)
    return f"{100 * bad / whole.finished:.3g}%" if bad else ""


def duration(seconds: float | None) -> str:
    """A duration in three digits: 1.23ms, 45.6s, 2.1h."""
    if seconds is None:
        return ""
    for size, unit in ((3600.0, "h"), (60.0, "m"), (1.0, "s"), (0.001, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds * 1e6:.3g}µs" if seconds else "0"


def spark(counts: Sequence[int], width: int = WIDTH, kind: Callable[[Sequence[int]], int] = sum) -> str:
    """The counts as a row of bars, at most `width` of them; `kind` is what makes one of several."""
    size = -(-len(counts) // width) or 1
    sums = [kind(counts[at : at + size]) for at in range(0, len(counts), size)]
    most = max(sums, default=0)
    # A bar for whatever is not nothing: one job in an hour of thousands must be seen.
    return "".join(BARS[-(-count * (len(BARS) - 1) // most)] for count in sums) if most else ""
