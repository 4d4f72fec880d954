"""`python -m benchmarks`: run the workloads, print the table, keep the JSON, write the page."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import functools
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from . import machine, page, plots
from .harness import QUICK, Results, Sizes
from .processes import Failed
from .report import Report
from .suites import SUITES, Suite

HERE = Path(__file__).parent
RESULTS = HERE / "results"


def main() -> int:
    options, suite = _options()
    if options.kept:
        runs = [Report.kept(path, suite.workloads, suite.ours) for path in options.kept]
        whole = functools.reduce(Report.joined, runs)
        order = [each for each in suite.workloads if each in whole.workloads]
        return _tell(dataclasses.replace(whole, workloads=order), suite, options.page)
    chosen = [each for each in suite.workloads if not options.only or each.name in options.only]
    sizes = dataclasses.replace(QUICK if options.quick else Sizes(), slots=options.worker_slots)
    rounds = options.rounds or (1 if options.quick else 3)
    folder = Path(tempfile.mkdtemp(prefix="treadle-bench-", dir=options.dir))
    kind, _ = machine.filesystem(folder)
    if kind in machine.IN_MEMORY:
        folder.rmdir()
        print(
            f"{options.dir} is a {kind}: a sync there costs nothing. Name a folder on a disk by --dir", file=sys.stderr
        )
        return 2
    began = time.monotonic()
    kept = options.json or RESULTS / f"{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}.json"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and workers are ended on the way out
    try:
        with suite.bench(sizes, folder, options.patience, options.peers) as (bench, facts):
            report = Report(
                results=Results(bench.samples),
                workloads=chosen,
                peers=options.peers,
                machine=facts,
                sizes=sizes,
                command=" ".join(["python -m benchmarks", *_measured_by(sys.argv[1:])]),
                date=dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
                took=0.0,
                ours=suite.ours,
                floor=suite.floor(bench),
            )

            def save() -> None:
                """After every round: a run that is stopped has what it has measured."""
                nonlocal report
                results = Results(bench.samples, bench.discarded)
                report = dataclasses.replace(report, results=results, took=time.monotonic() - began)
                report.save(kept)

            bench.run(chosen, options.peers, rounds, save)
    except Failed as failed:  # a server or an environment that cannot be had; what fails in a cell is kept as such
        print(failed, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # A part of the figures must not pass for the whole.
    is_whole = not (options.only or options.quick or options.peers != list(suite.peers))
    return _tell(report, suite, options.page or (suite.page if is_whole else None))


def _tell(report: Report, suite: Suite, path: Path | None) -> int:
    print(report.table())
    if path is not None:
        plot = path.with_suffix(".svg")
        plot.write_text(plots.svg(report, suite.title))
        path.write_text(page.page(report, suite.title, suite.how, plot.name))
        print(f"written: {path}, {plot}", file=sys.stderr)
    return 1 if any(sample.error for sample in report.results.samples) else 0


def _measured_by(arguments: list[str]) -> list[str]:
    """The arguments that make a difference to what is measured: the page tells them, and not where its author keeps
    files."""
    places = ("--json", "--page", "--dir")
    pairs = zip(["", *arguments], arguments, strict=False)
    return [each for before, each in pairs if not (before in places or each.split("=")[0] in places)]


def _options() -> tuple[argparse.Namespace, Suite]:
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--suite", choices=list(SUITES), default="sqlite", help="which peers, and on what (%(default)s)")
    suite = SUITES[first.parse_known_args()[0].suite]
    parser = argparse.ArgumentParser(
        "python -m benchmarks", description="Measure Treadle beside other libraries.", parents=[first]
    )
    names = [each.name for each in suite.workloads]
    known = list(suite.peers)
    parser.add_argument("--rounds", type=int, help="how often each cell is measured (default 3; with --quick 1)")
    parser.add_argument("--only", type=_some(names), metavar="NAME,...", help=f"some of: {', '.join(names)}")
    parser.add_argument(
        "--peers", type=_some(known), metavar="NAME,...", default=known, help=f"some of: {', '.join(known)}"
    )
    parser.add_argument("--brief", action="store_true", help="us and the nearest peers, and fewer workloads")
    parser.add_argument("--quick", action="store_true", help="small numbers, one round: does it work at all?")
    parser.add_argument("--worker-slots", type=int, default=Sizes().slots, metavar="N", help="default %(default)s")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="on a machine with other users: so long, in all, may be spent on waiting for quiet and on measuring again",
    )
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"), help="where the databases go; not a RAM disk")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the samples go (default benchmarks/results/)")
    parser.add_argument(
        "--from",
        dest="kept",
        type=lambda text: [Path(each) for each in text.split(",")],
        metavar="PATH,...",
        help="measure nothing: report kept samples; those of several runs count as further rounds",
    )
    parser.add_argument("--page", type=Path, metavar="PATH", help="write the page there, whatever was chosen")
    options = parser.parse_args()
    if options.brief:
        options.only = options.only or list(suite.brief)
        options.peers = list(suite.nearest) if options.peers == known else options.peers
    return options, suite


def _some(known: list[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [each for each in found if each not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is not one of {', '.join(known)}")
        return found

    return read


if __name__ == "__main__":
    sys.exit(main())
