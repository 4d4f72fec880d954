"""The numbers of the last campaign, in docs/guarantees.md between marks."""

from __future__ import annotations

import datetime as dt
import platform
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from .campaign import Report

PAGE = Path(__file__).parent.parent.parent / "docs" / "guarantees.md"


def put(mark: str, text: str) -> None:
    """Write what stands between `<!-- MARK -->` and the next `<!-- end -->` anew."""
    whole = PAGE.read_text()
    found = re.compile(rf"(<!-- {re.escape(mark)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not found.search(whole):
        raise SystemExit(f"{PAGE} has no <!-- {mark} --> … <!-- end -->")
    PAGE.write_text(found.sub(lambda marks: f"{marks[1]}{text.rstrip()}\n{marks[2]}", whole, count=1))


def write_soak(reports: Sequence[Report], minutes: float) -> None:
    def row(name: str, *cells: object) -> str:
        return f"| {name} | " + " | ".join(str(cell) for cell in cells) + " |"

    def seconds(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f} s"

    kinds = sorted({kind for report in reports for kind in report.faults})
    lines = [
        f"{dt.datetime.now(dt.UTC).date().isoformat()}, `make soak MINUTES={minutes:g}`, seed `{reports[0].seed}`, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; lease, beat and scan at a tenth of "
        "the defaults.",
        "",
        row("", *(report.storage for report in reports)),
        row("---", *("---" for _ in reports)),
        row("broken promises", *(len(report.broken) for report in reports)),
        row("jobs", *(sum(report.states.values()) for report in reports)),
        row("enqueues answered / unknown", *(
            f"{report.enqueued.get('ok', 0)} / {report.enqueued.get('unknown', 0)}" for report in reports
        )),
        row("claims / rescued", *(f"{report.claims} / {report.rescues}" for report in reports)),
        row("workers killed -9", *(report.kills for report in reports)),
        row("workers restarted", *(report.ended.get("restarts", 0) for report in reports)),
        *(row(f"{kind}: p50 / p99 / worst", *(
            " / ".join(seconds(each) for each in report.recoveries[kind][1:]) for report in reports
        )) for kind in reports[0].recoveries),
        row("drained after healing", *(seconds(report.drained_in) for report in reports)),
        *(row(f"fault: {kind}", *(report.faults.get(kind, "–") for report in reports)) for kind in kinds),
    ]  # fmt: skip
    put("soak", "\n".join(lines))
