"""The page `docs/benchmarks.md`, written anew by every full run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import floor, peers
from .harness import NOISY
from .report import MAIN_FIGURES, UNITS, Report, show, wanted

HOW = """\
Every measurement has fresh processes and a fresh database file on a disk that really syncs. The rounds are
interleaved: each takes every workload for every peer once, the next one in the opposite order, and the table has the
median, with the lowest and the highest round. Producer and worker are separate processes, started as their users
start them, except for the pickup in the same process.

* **drain**: from the first line of the first job until the database says that no job is left. The jobs were enqueued
  before; the time that a worker needs to start is not counted.
* **drain-backlog**: the scheduled and the finished jobs are of the same queue, task and priority as those that are
  drained. This file alone is kept from round to round: filling it takes longer than measuring.
* **bulk, callers**: from the call to its return, which is after the commit.
* **pickup**: CLOCK_MONOTONIC, which all processes share; 20 jobs a second with ±40 % jitter.
* **steady**: every job is sent at its instant, whether or not those before it are committed (blocking libraries: by 16
  threads), until the time is over; the pickup times are those of jobs that ran up to five seconds later.
* **naps**: `asyncio.sleep`, or `time.sleep` in a thread, with exactly so many slots for everybody.
* **memory**: proportional set size of the worker and its children.
* **processor time**: read from the kernel's clock of that process, over the span that is measured; all its threads.
* **commits, WAL bytes**: read from SQLite's own index of the log. WAL bytes are whole pages, so small commits cost
  more of them; they are a little too low (at most some per cent) where the log started over during the run.
* **others**: processor time of the machine that none of our processes took, as a share of all cores. It contains the
  kernel's own work for our disk writes. Other guests of the same host do not show there, but in the loop that is
  timed before and after every measurement.

Huey removes a job from its table when it starts and never writes that it ended: a consumer that dies loses what it was
running, and there is no history to look at. We write twice a job, and keep the row. So its rate is that of a lesser
promise, at one commit a job.
"""


def page(report: Report, title: str = "Benchmarks", how: str = HOW, plot: str | None = None) -> str:
    return "\n".join(_lines(report, title, how, plot)).rstrip() + "\n"


def _lines(report: Report, title: str, how: str, plot: str | None) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    yield f"Written by `{report.command}` on {report.date}; it took {report.took:.0f} s. Do not edit: run it again."
    yield ""
    yield f"Noise: {report.noise()}."
    yield ""
    if plot is not None:
        yield f"![{title}: a panel of bars for each workload, we in blue; the same figures are below]({plot})"
        yield ""
    yield "## Figures"
    yield ""
    yield from _figures(report)
    yield "## Targets"
    yield ""
    yield from _targets(report)
    yield ""
    yield "## Where we lose"
    yield ""
    yield from _losses(report)
    yield ""
    if report.floor:
        yield "## The floor"
        yield ""
        yield from _floor(report)
        yield ""
    yield "## Machine and settings"
    yield ""
    yield from _table(("", ""), report.machine.items())
    yield ""
    names = list(report.peers)
    settings = [peers.find(name).settings() for name in names]
    keys = list(dict.fromkeys(key for each in settings for key in each))
    yield from _table(("", *names), ((key, *(each.get(key, "") for each in settings)) for key in keys))
    yield ""
    yield f"Worker slots: {report.sizes.slots}. Jobs in a drain: {report.sizes.drain:,} (fewer for slower peers)."
    yield ""
    yield "## How it is measured"
    yield ""
    yield how


def _figures(report: Report) -> Iterator[str]:
    results = report.results
    for workload in report.workloads:
        names = [
            name
            for name in workload.figures
            if any(results.figure(workload.name, peer, name) is not None for peer in report.peers)
        ]
        yield f"**{workload.name}**. {workload.title}."
        yield ""
        rows = []
        for peer in report.peers:
            title = peers.find(workload.run_by or peer).title
            samples = results.good(workload.name, peer)
            if samples:
                noise = max(sample.load["foreign"] for sample in samples)
                cells = [_cell(report, workload.name, peer, name) for name in names]
                rows.append((title, *cells, f"{noise:.0%}{' ~' if noise > NOISY else ''}"))
            elif results.cell(workload.name, peer):
                rows.append((title, "failed", *([""] * len(names))))
        yield from _table(("", *(UNITS[name][0] for name in names), "others, at most"), rows)
        yield ""


def _cell(report: Report, workload: str, peer: str, name: str) -> str:
    found = report.results.figure(workload, peer, name)
    if found is None:
        return ""
    middle = show(name, found.median)
    if found.rounds == 1 or name not in MAIN_FIGURES:
        return middle
    return f"{middle} ({show(name, found.low)}–{show(name, found.high)})"


def _targets(report: Report) -> Iterator[str]:
    rows = []
    for workload in report.workloads:
        for target in workload.targets:
            reached = report.results.reached(target, workload.name, report.ours)
            if reached is None:
                rows.append((workload.name, wanted(target), "not measured", "no"))
                continue
            found = f"{reached[0].median:.2f} ×" if target.beside else show(target.figure, reached[0].median)
            rows.append((workload.name, wanted(target), found, "yes" if reached[1] else "**no**"))
    yield from _table(("workload", "target", "found", "reached"), rows)


def _losses(report: Report) -> Iterator[str]:
    lines = [*report.missed(), *report.lost()]
    if not lines:
        yield "No target was missed in this run, and no figure of another peer was clearly better than ours."
    yield from (f"- {line}" for line in lines)


def _floor(report: Report) -> Iterator[str]:
    yield "What this machine does with the bare parts, the best of a few tries before the rounds:"
    yield ""
    yield from _table(
        ("", "µs"),
        ((words, f"{report.floor[name]:.1f}") for name, words in floor.UNITS.items() if name in report.floor),
    )
    yield ""
    yield "Our distance to it. A bare worker claims 500 rows, decodes them, makes a task of each and deletes them. It"
    yield "has no lease, no history, no limit and no timeout, and nobody finds out what it was doing when it died."
    yield ""

    def ours(workload: str, figure: str) -> float | None:
        found = report.results.figure(workload, report.ours, figure)
        return None if found is None else found.median

    yield from _table(
        ("", "floor", "µs", "we, µs", "distance"),
        (
            (each.what, each.parts, f"{each.floor:.1f}", f"{each.ours:.1f}", f"{each.ours / each.floor:.1f} ×")
            for each in floor.distances(report.floor, ours)
        ),
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
