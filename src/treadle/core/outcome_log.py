"""What a worker's log says of its jobs: which line, at which level, and how many of a kind.

A line is made of a Change that the storage has accepted, and of the job as it was claimed. It names the task, the job
and the error as they are stored (masked, bounded); arguments and results are never in it. Text that comes from a job is
made visible, or a task could write a newline and, behind it, a line that looks like another one's.

A thousand jobs that fail alike should not fill a disk: of each task and cause ten lines a minute are written, and then
one with the number of those left out. Lines that somebody has asked for (each start, each success) are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from .duration import words
from .job import Change, ErrorEntry, Job, cause_of
from .logline import LEVELS
from .text import visible

LOGGER: Final = "treadle.jobs"
MOST_LINES: Final = 10
WINDOW: Final = 60.0  # seconds
MOST_KINDS: Final = 1000  # of lines that are counted apart; further ones are counted as one

_CHATTER: Final = {
    "snoozed": "snoozed",
    "waits": "waits for an answer",
    "answered": "was answered",
    "released": "was given back",
}


class Line(Struct, frozen=True):
    level: int
    text: str
    kind: str = ""  # lines of one kind are counted together; empty: never left out
    trace: str = ""
    fields: dict[str, Any] = {}


def of_change(change: Change, job: Job, *, most: int, now: float, each: int) -> Line | None:
    """The line for a Change that was accepted. `most` attempts are allowed; `each` is the level at which every start
    and success is told. `now` is the storage's time."""
    error, why = change.error, change.why
    who = f"{visible(job.task)} {visible(job.id)}"
    attempt = f"attempt {job.attempt} of {most}"
    kind = f"{why}:{job.task}"
    fields = _fields(job, why)
    if error is not None:
        fields["error"] = _error(error)
    if why == "succeeded":
        return Line(each, f"{who} succeeded, {attempt}", fields=fields)
    if why == "failed":
        said = f"{who} failed for good, {attempt}: {_said(error)}"
        return Line(LEVELS["error"], said, _kind(why, job, error), _indented(error), fields)
    if why in ("retried", "rescued"):
        said = f"{who} failed, {attempt}: {_said(error)}; runs again {_when(change, now)}"
        return Line(LEVELS["warning"], said, _kind(why, job, error), fields=fields)
    if why == "throttled":
        # The queue's own curve may say longer than the task: only the storage knows it.
        rest = f"{words(round(change.delay or 0.0, 1))} or longer, until {_at(now + (change.delay or 0.0))}"
        said = f"{who} was throttled, {attempt}; queue {visible(job.queue)} rests for {rest}"
        return Line(LEVELS["info"], said, kind, fields=fields)
    if why == "cancelled":
        return Line(LEVELS["info"], f"{who} was cancelled, {attempt}: {_said(error)}", kind, fields=fields)
    if why in _CHATTER:
        again = f"; runs again {_when(change, now)}" if why == "snoozed" else ""
        return Line(LEVELS["debug"], f"{who} {_CHATTER[why]}{again}", fields=fields)
    return None


def of_start(job: Job, each: int) -> Line:
    text = f"{visible(job.task)} {visible(job.id)} started, attempt {job.attempt}, queue {visible(job.queue)}"
    return Line(each, text, fields=_fields(job, "started"))


def of_fire(schedule: str, task: str, jobs: Sequence[str], skipped: int) -> list[Line]:
    """For the fire times of a schedule that were settled in one write."""
    name, fields = f"schedule {visible(schedule)}", {"schedule": schedule, "task": task}
    lines = [
        Line(LEVELS["info"], f"{name} fired: {visible(task)} {visible(job)}", f"fired:{schedule}", fields=fields)
        for job in jobs
    ]
    if skipped:
        text = f"{name} skipped {skipped} fire time{'' if skipped == 1 else 's'}: an earlier job of it is under way"
        lines.append(Line(LEVELS["info"], text, f"skipped:{schedule}", fields=fields))
    return lines


class Flood(Struct, frozen=True):
    """How many lines of one kind were written and left out since the first of them."""

    since: float
    written: int = 0
    left_out: int = 0


def admit(flood: Flood) -> tuple[Flood, bool]:
    """The count with one more line, and whether that is written."""
    if flood.written < MOST_LINES:
        return Flood(flood.since, flood.written + 1, flood.left_out), True
    return Flood(flood.since, flood.written, flood.left_out + 1), False


def is_over(flood: Flood, now: float) -> bool:
    """After a minute the count begins anew; what was left out is told first, by `summary`."""
    return now - flood.since >= WINDOW


def summary(line: Line, left_out: int) -> Line:
    """One line for those that were left out; `line` is the last of them."""
    text = f"{left_out} more like this within a minute, the last one: {line.text}"
    return Line(line.level, text, fields={**line.fields, "left_out": left_out})


def _fields(job: Job, outcome: str) -> dict[str, Any]:
    fields = {"job_id": job.id, "task": job.task, "queue": job.queue, "attempt": job.attempt, "outcome": outcome}
    return fields | {name: value for name, value in (("pod", job.pod), ("reason", job.reason)) if value}


def _kind(why: str, job: Job, error: ErrorEntry | None) -> str:
    return f"{why}:{job.task}" if error is None else f"{why}:{cause_of(job.task, error)}"


def _error(error: ErrorEntry) -> str:
    head = error.type or ("" if error.kind == "cancelled" else error.kind)
    return ": ".join(part for part in (head, error.message) if part)


def _said(error: ErrorEntry | None) -> str:
    return "for no reason that was kept" if error is None else visible(_error(error))


def _indented(error: ErrorEntry | None) -> str:
    """The trace, each line of it in visible characters and set in: none can be taken for a line of the log."""
    if error is None or not error.trace:
        return ""
    return "\n".join(f"    {visible(line)}" for line in error.trace.rstrip("\n").split("\n"))


def _when(change: Change, now: float) -> str:
    """Counted from the write; the storage's clock decides, so this is as exact as the pod knows it."""
    delay = change.delay if change.delay is not None else (change.run_at or now) - now
    if delay <= 0:
        return "now"
    return f"in {words(round(delay, 1))} ({_at(now + delay)})"


def _at(instant: float) -> str:
    return datetime.fromtimestamp(round(instant), UTC).isoformat().replace("+00:00", "Z")
