"""`treadle db copy`: everything that one storage keeps, to another.

Rows are written as they are and never overwritten, so a copy that was stopped half-way is completed by running it
again. Nothing is written to the source. What proves the copy is the count at the end: both sides are read once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from ..config import masked
from ..core import record as records
from ..core.errors import ConfigError, StorageTimeout
from .command import Invocation, verb
from .errors import DONE, FAILED
from .target import must_exist

if TYPE_CHECKING:
    from ..ports import Dumped, Storage

PAGE: Final = 500
SHOWN: Final = 20
_EVERYTHING: Final = 10**12

OnStep = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Place:
    """One of the two storages, with its name for people."""

    name: str
    storage: Storage


@dataclass(slots=True)
class Report:
    """What the copy did, and what was found afterwards."""

    source: dict[str, int] = field(default_factory=dict[str, int])  # state → jobs
    target: dict[str, int] = field(default_factory=dict[str, int])
    others: dict[str, int] = field(default_factory=dict[str, int])  # jobs that the target had before
    rows: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])  # kind → outcome → rows
    returned: int = 0  # jobs that were running, and whose pod is gone
    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


@verb(
    "copy",
    "treadle db copy sqlite:///treadle.db postgresql://app@db.internal/shop",
    "treadle db copy postgresql://app@db.internal/shop sqlite:///shop.db --json",
)
@click.argument("source_url")
@click.argument("target_url")
@click.option("--into-nonempty", is_flag=True, help="The target may have jobs of its own.")
def copy(call: Invocation, source_url: str, target_url: str, into_nonempty: bool) -> int:
    """Copy all jobs, queues, schedules and limits to another storage. Ids are kept, and what is there already is
    compared and left alone: after a copy that was stopped, run it again. Refused while workers live on either side.
    Exit code 1 if anything differs afterwards."""
    if call.flags.get("url") is not None:
        raise click.UsageError("db copy takes both storages as arguments; leave --url out")
    if source_url == target_url:
        raise click.UsageError("the source and the target are the same storage")
    must_exist(source_url)
    report = asyncio.run(_run(call, source_url, target_url, into_nonempty))
    _tell(call, masked(source_url), masked(target_url), report)
    return FAILED if report.problems else DONE


async def _run(call: Invocation, source_url: str, target_url: str, into_nonempty: bool) -> Report:
    source, target = _place(source_url), _place(target_url)
    async with contextlib.AsyncExitStack() as closing:
        if (await source.storage.schema()).current == 0:
            raise ConfigError(f"{source.name} has no Treadle tables: there is nothing to copy")
        for place in (source, target):
            await place.storage.open()
            closing.push_async_callback(place.storage.close)
            await _check_schema(place)
            await _check_pods(place)
        with _progress(call, await _total(call, source)) as on_step:
            return await copy_all(source, target, into_nonempty=into_nonempty, on_step=on_step)


def _place(url: str) -> Place:
    from ..app import App

    place = Place(masked(url), App(url).storage)
    if not place.storage.capabilities.durable:
        raise ConfigError(f"{place.name} is lost when its process ends: there is nothing to copy from it or to it")
    return place


async def _check_schema(place: Place) -> None:
    status = await place.storage.schema()
    if status.current < status.newest:
        raise ConfigError(
            f"{place.name} has schema {status.current} of {status.newest}: run `treadle db migrate` there"
        )
    if status.current > status.newest:
        raise ConfigError(
            f"{place.name} has schema {status.current}, and this Treadle knows {status.newest}: upgrade Treadle, "
            "so that nothing is left behind"
        )


async def _check_pods(place: Place) -> None:
    live = [pod for pod in await place.storage.pods() if pod.live]
    if live:
        names = ", ".join(f"{pod.card.label} (its lease ends in {pod.lease_left:.0f} s)" for pod in live[:3])
        more = f" and {len(live) - 3} more" if len(live) > 3 else ""
        raise ConfigError(f"workers live on {place.name}: {names}{more}; stop them first")


# ---------------------------------------------------------------------------------------------------------------------
# The copy


async def copy_all(source: Place, target: Place, *, into_nonempty: bool, on_step: OnStep) -> Report:
    """Copy everything, then count both sides. Both are open, and nobody works on them."""
    report = Report()
    now = time.time()  # one instant for both sides: it only tells scheduled from ready
    others, last = await _others(source, target, now)
    if others and not into_nonempty:
        raise ConfigError(
            f"{target.name} has {others.total():,} jobs that {source.name} has not: copy to an empty storage, or say "
            "--into-nonempty"
        )
    report.others = dict(others)
    for kind in source.storage.kinds():
        report.rows[kind] = dict(await _copy_kind(source, target, kind, report, last, on_step, mild=into_nonempty))
    for place in (source, target):
        await _check_pods(place)
    await _compare(source, target, report, others, now)
    return report


async def _others(source: Place, target: Place, now: float) -> tuple[Counter[str], int]:
    """How many jobs of the target are not of the source, by state, and the last place that one of them has."""
    others: Counter[str] = Counter()
    last = 0
    async for page in _pages(target, "job"):
        known = {job.id for job in await source.storage.get([job["id"] for job in page.records])}
        strange = [job for job in page.records if job["id"] not in known]
        others.update(records.state_at(job, now) for job in strange)
        last = max([last, *(job["seq"] for job in strange)])
    return others, last


async def _copy_kind(
    source: Place, target: Place, kind: str, report: Report, last: int, on_step: OnStep, *, mild: bool
) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    has_place = kind in target.storage.kinds()
    async for page in _pages(source, kind):
        report.problems += [f"{kind} {name} cannot be read in {source.name}" for name in page.damaged]
        rows = [_moved(kind, row, last) for row in page.records]
        if kind == "job":
            report.returned += sum(row["state"] == "running" for row in page.records)
        on_step(kind, len(rows))
        if not has_place:
            outcomes["refused"] += len(rows)
            continue
        for row, answer in zip(rows, await target.storage.load(kind, rows), strict=True):
            outcomes[answer.outcome] += 1
            if answer.outcome in ("differs", "refused"):
                # What the target's people have set on their own is theirs, where they are expected to be.
                said = report.notes if mild and kind != "job" and answer.outcome == "differs" else report.problems
                said.append(_line(kind, row, answer.outcome, answer.error))
    if not has_place and outcomes["refused"]:
        report.problems.append(f"{target.name} has no place for {outcomes['refused']:,} rows of {kind}")
    return outcomes


def _moved(kind: str, row: records.Record, last: int) -> records.Record:
    """A row as it is to be written. A job: nobody runs it, and it comes behind what the target had before."""
    if kind == "job":
        return records.returned({**row, "seq": row["seq"] + last})
    return records.restarted(row) if kind == "operation" else row


def _line(kind: str, row: records.Record, outcome: str, error: str) -> str:
    name = row.get("id") or row.get("name") or next(iter(row.values()), "")
    return f"{kind} {name} is there with other values ({error})" if outcome == "differs" else f"{kind} {name}: {error}"


async def _compare(source: Place, target: Place, report: Report, others: Counter[str], now: float) -> None:
    for kind in source.storage.kinds():
        here = await _count(source, kind, now)
        there = await _count(target, kind, now) if kind in target.storage.kinds() else Counter[str]()
        if kind == "job":
            report.source, report.target = dict(here), dict(there)
            if here + others != there:
                report.problems.append(
                    f"the jobs differ: {source.name} has {_counts(here)}, {target.name} has {_counts(there)}"
                    + (f", {_counts(others)} of them before" if others else "")
                )
        elif there.total() < here.total():
            report.problems.append(
                f"{target.name} has {there.total():,} rows of {kind}, and {source.name} {here.total():,}"
            )


async def _count(place: Place, kind: str, now: float) -> Counter[str]:
    found: Counter[str] = Counter()
    async for page in _pages(place, kind):
        if kind == "job":
            found.update(records.state_at(records.returned(row), now) for row in page.records)
        else:
            found[kind] += len(page.records)
    return found


async def _pages(place: Place, kind: str) -> AsyncIterator[Dumped]:
    cursor = None
    while True:
        page = await place.storage.dump(kind, cursor, PAGE)
        yield page
        cursor = page.next
        if cursor is None:
            return


# ---------------------------------------------------------------------------------------------------------------------
# For people


async def _total(call: Invocation, source: Place) -> int | None:
    """How many jobs there are to copy, for the bar; None if to know it would take too long."""
    from ..core.filter import parse

    if not call.out.shows_progress:
        return None
    with contextlib.suppress(StorageTimeout):
        return sum((await source.storage.count(parse(""), _EVERYTHING)).values())
    return None


@contextlib.contextmanager
def _progress(call: Invocation, total: int | None) -> Generator[OnStep]:
    if not call.out.shows_progress:
        yield lambda kind, rows: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        jobs = bar.add_task("jobs", total=total)
        rest = bar.add_task("everything else", total=None)
        yield lambda kind, rows: bar.advance(jobs if kind == "job" else rest, rows)


def _tell(call: Invocation, source: str, target: str, report: Report) -> None:
    if call.out.as_json:
        call.out.data(_as_json(source, target, report))
        return
    states = sorted({*report.source, *report.target})
    call.out.table(
        ["jobs", "source", "target", *(["before"] if report.others else [])],
        [
            [state, *(str(side.get(state, 0)) for side in (report.source, report.target)), *_before(report, state)]
            for state in states
        ],
    )
    for kind, outcomes in report.rows.items():
        if outcomes:
            call.out.say(f"{kind}: {_counts(outcomes)}")
    if report.returned:
        call.out.say(f"{report.returned:,} jobs were running under workers that are gone: they are ready in the target")
    for line in [*report.notes[:SHOWN], *report.problems[:SHOWN]]:
        call.out.warn(line)
    if len(report.problems) > SHOWN:
        call.out.warn(f"and {len(report.problems) - SHOWN:,} more; --json lists them all")


def _before(report: Report, state: str) -> list[str]:
    return [str(report.others.get(state, 0))] if report.others else []


def _as_json(source: str, target: str, report: Report) -> dict[str, Any]:
    jobs = {"source": report.source, "target": report.target, "before": report.others}
    return {
        "source": source,
        "target": target,
        "same": not report.problems,
        "jobs": jobs,
        "rows": report.rows,
        "returned": report.returned,
        "notes": report.notes,
        "problems": report.problems,
    }


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()) if count)
