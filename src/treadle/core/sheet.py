"""Sheets: jobs, failures and timings as CSV (RFC 4180), which people open in a spreadsheet.

A text that a spreadsheet would take for a formula gets an apostrophe before it: what somebody enqueued must not run on
the desk of whoever looks at it. Numbers are numbers, and stay.

What does not show itself (`text.visible`) is escaped, the ends of lines too. CSV may have them within quotes, but
`grep`, `head` and `wc -l` do not know that, and a text with a newline could forge a record for them. So a record is one
line. A cell that is JSON stays the same JSON: its escapes are JSON's own.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from .compare import Comparison, bad_runs, bad_share
from .series import PairSeries
from .text import visible

# As spreadsheets read them, also in their wide forms; whatever is blank before them is overlooked by some.
_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_BLANK: Final = " \t\r\n\v\f\0\ufeff\u00a0\u200b"

JOB: Final = (
    "id",
    "state",
    "task",
    "queue",
    "priority",
    "attempt",
    "max_attempts",
    "created_at",
    "run_at",
    "started_at",
    "finished_at",
    "seconds",
    "slot",
    "schedule",
    "tags",
    "reason",
    "unique_key",
    "error_kind",
    "error_type",
    "error_message",
)
PAYLOAD: Final = ("args", "result", "meta")
FAILURE: Final = (
    "count", "failed", "retrying", "mark", "type", "task", "place", "message", "first_at", "last_at", "sample", "cause",
    "filter", "muted",
)  # fmt: skip
TIMING: Final = (
    "queue", "task", "runs", "bad", "bad_share", "wait_p50", "wait_p95", "run_p50", "run_p95", "run_p99", "run_max",
    "seconds",
)  # fmt: skip
_COMPARED: Final = ("runs", "bad", "wait_p50", "wait_p95", "run_p50", "run_p95")
COMPARED: Final = ("queue", "task", *(f"{name}{end}" for name in _COMPARED for end in ("", "_before", "_by", "_word")))


def line(values: Iterable[Any]) -> str:
    """One record, with its end."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow([cell(value) for value in values])
    return out.getvalue()


def cell(value: Any) -> str | int | float:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return value
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case str():
            return visible(safe(value))
        case _:
            return visible(safe(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)))


def safe(text: str) -> str:
    """The text, so that no spreadsheet takes it for a formula."""
    begins = text.lstrip(_BLANK)[:1]
    return f"'{text}" if (begins and begins in _FORMULA) or text[:1] in ("\t", "\r", "\n") else text


def job(found: Mapping[str, Any], *, payload: bool) -> list[Any]:
    """A job of JSON values, as CLI and HTTP show it."""
    error: Mapping[str, Any] = found.get("error") or {}
    own = {
        **found,
        "seconds": _between(found.get("started_at"), found.get("finished_at")),
        "tags": " ".join(found.get("tags") or ()),
        "error_kind": error.get("kind"),
        "error_type": error.get("type"),
        "error_message": error.get("message"),
    }
    return [own.get(name) for name in (*JOB, *(PAYLOAD if payload else ()))]


def _between(started: str | None, finished: str | None) -> float | None:
    if not started or not finished:
        return None
    took = (datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds()
    return round(took, 3) if took >= 0 else None


def timing(pair: PairSeries) -> list[Any]:
    whole = pair.series.whole
    wait, run = whole.wait, whole.run
    share = bad_share(whole)
    return [
        pair.queue, pair.task, whole.finished, bad_runs(whole), None if share is None else round(share, 4),
        _rounded(wait.p50), _rounded(wait.p95), _rounded(run.p50), _rounded(run.p95), _rounded(run.p99),
        _rounded(run.max), _rounded((run.mean or 0.0) * run.count),
    ]  # fmt: skip


def compared(found: Comparison) -> list[Sequence[Any]]:
    rows: list[Sequence[Any]] = []
    for pair in found.items:
        now = (
            pair.now.finished,
            bad_share(pair.now),
            pair.now.wait.p50,
            pair.now.wait.p95,
            pair.now.run.p50,
            pair.now.run.p95,
        )
        row: list[Any] = [pair.queue, pair.task]
        for name, value in zip(_COMPARED, now, strict=True):
            change = getattr(pair, name)
            row += [_rounded(value), _rounded(change.before), _rounded(change.by), change.word]
        rows.append(row)
    return rows


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
