"""What a worker's log says of its jobs, line by line."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from treadle.core import lifecycle
from treadle.core.backoff import Retry
from treadle.core.job import Change, ErrorEntry, Job, State
from treadle.core.outcome import (
    Interrupted,
    Outcome,
    Raised,
    Snoozed,
    Stopped,
    Succeeded,
    Throttled,
    Waits,
)
from treadle.core.outcome_log import (
    MOST_LINES,
    WINDOW,
    Flood,
    Line,
    admit,
    is_over,
    of_change,
    of_fire,
    of_start,
    summary,
)

NOW = 1_790_000_000.0
RETRY = Retry.fixed(10, max_attempts=3, jitter=0)
ERROR = ErrorEntry(attempt=1, kind="error", type="ValueError", message="no luck", trace="Traceback:\n  a\nValueError\n")


def a_job(**more: object) -> Job:
    fields = {"attempt": 1, "pod": "p1", "token": "t", "args": '{"secret": 4111}', **more}
    return Job(id="j1", task="mail.send", queue="mail", state=State.RUNNING, **fields)  # type: ignore[arg-type]


def told(outcome: Outcome, job: Job | None = None, *, each: int = logging.DEBUG) -> Line:
    job = job or a_job()
    line = of_change(lifecycle.finish(job, outcome, RETRY, 0.5), job, most=3, now=NOW, each=each)
    assert line is not None
    return line


def test_a_failed_attempt_is_a_warning_that_says_when_it_runs_again() -> None:
    line = told(Raised(ERROR))
    assert line.level == logging.WARNING
    assert line.text == (
        "mail.send j1 failed, attempt 1 of 3: ValueError: no luck; runs again in 10s (2026-09-21T14:13:30Z)"
    )
    assert line.trace == ""
    assert line.fields == {
        "job_id": "j1", "task": "mail.send", "queue": "mail", "attempt": 1, "outcome": "retried", "pod": "p1",
        "error": "ValueError: no luck",
    }  # fmt: skip


def test_a_job_that_failed_for_good_is_an_error_with_its_trace() -> None:
    line = told(Raised(ERROR), a_job(attempt=3))
    assert line.level == logging.ERROR
    assert line.text == "mail.send j1 failed for good, attempt 3 of 3: ValueError: no luck"
    assert line.trace == "    Traceback:\n      a\n    ValueError"


def test_a_failure_without_words() -> None:
    bare = ErrorEntry(attempt=3, kind="timeout")
    line = told(Raised(bare), a_job(attempt=3))
    assert (line.text, line.trace) == ("mail.send j1 failed for good, attempt 3 of 3: timeout", "")


def test_a_rescue_says_which_pod_is_gone() -> None:
    job = a_job()
    line = of_change(lifecycle.rescue(job, "web-1"), job, most=10, now=NOW, each=logging.DEBUG)
    assert line is not None and line.level == logging.WARNING
    assert line.text == (
        "mail.send j1 failed, attempt 1 of 10: worker_lost: pod web-1 is gone; it was running attempt 1; runs again now"
    )


def test_a_throttle_says_until_when_its_queue_rests() -> None:
    line = told(Throttled(30.0))
    assert line.level == logging.INFO
    assert line.text == (
        "mail.send j1 was throttled, attempt 1 of 3; queue mail rests for 30s or longer, until 2026-09-21T14:13:50Z"
    )


def test_a_cancel_is_information() -> None:
    line = told(Stopped(ErrorEntry(attempt=1, kind="cancelled", message="cancelled while it ran")))
    assert line.level == logging.INFO
    assert line.text == "mail.send j1 was cancelled, attempt 1 of 3: cancelled while it ran"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Snoozed(3600.0), "mail.send j1 snoozed; runs again in 1h (2026-09-21T15:13:20Z)"),
        (Waits("a1"), "mail.send j1 waits for an answer"),
        (Interrupted(0.0), "mail.send j1 was given back"),
    ],
)
def test_what_is_no_news_is_told_at_debug(outcome: Outcome, words: str) -> None:
    line = told(outcome)
    assert (line.level, line.text) == (logging.DEBUG, words)


@pytest.mark.parametrize("each", [logging.DEBUG, logging.INFO])
def test_starts_and_successes_are_told_at_the_level_that_is_asked_for(each: int) -> None:
    job = a_job(reason="nightly")
    line = told(Succeeded(result='"4111"'), job, each=each)
    assert (line.level, line.text, line.kind) == (each, "mail.send j1 succeeded, attempt 1 of 3", "")
    start = of_start(job, each)
    assert (start.level, start.text) == (each, "mail.send j1 started, attempt 1, queue mail")
    assert start.fields["reason"] == "nightly"


def test_what_is_no_end_of_a_run_has_no_line() -> None:
    change = Change(id="j1", why="moved", expect=frozenset({State.READY}))
    assert of_change(change, a_job(), most=3, now=NOW, each=logging.DEBUG) is None


def test_an_end_without_an_error_and_at_an_instant() -> None:
    """Not written by Treadle; a Change may say so all the same."""
    job = a_job()
    failed = Change(id="j1", why="failed", expect=frozenset({State.RUNNING}), to=State.FAILED)
    line = of_change(failed, job, most=3, now=NOW, each=logging.DEBUG)
    assert line is not None and line.text.endswith("for no reason that was kept")
    later = replace(failed, why="retried", run_at=NOW + 60)
    line = of_change(later, job, most=3, now=NOW, each=logging.DEBUG)
    assert line is not None and line.text.endswith("runs again in 1m (2026-09-21T14:14:20Z)")


def test_arguments_and_results_are_never_told() -> None:
    for outcome in (Raised(ERROR), Succeeded(result='"4111"'), Throttled(1.0), Snoozed(1.0)):
        line = told(outcome)
        assert "4111" not in f"{line.text} {line.trace} {line.fields}"


def test_text_of_a_job_cannot_forge_a_line() -> None:
    forged = "x\n2026-01-01 info treadle.pod: all is well\r\x1b[2K\u2028\u202e\udc80"
    error = replace(ERROR, message=forged, type=forged, trace=f"Traceback\n{forged}")
    job = replace(a_job(attempt=3), task=forged, id=forged, queue=forged)
    for line in (
        told(Raised(error), job),
        told(Throttled(1.0), job),
        of_start(job, 10),
        *of_fire(forged, forged, ["j"], 1),
    ):
        assert line.text.isprintable()
        assert all(each.startswith("    ") and each.isprintable() for each in line.trace.split("\n") if line.trace)


def test_fires_of_a_schedule() -> None:
    fired, skipped = of_fire("nightly", "report", ["j1"], 2)
    assert (fired.level, fired.text) == (logging.INFO, "schedule nightly fired: report j1")
    assert skipped.text == "schedule nightly skipped 2 fire times: an earlier job of it is under way"
    assert of_fire("nightly", "report", [], 1)[0].text.startswith("schedule nightly skipped 1 fire time:")
    assert of_fire("nightly", "report", ["a", "b"], 0)[1].text.endswith("report b")


def test_ten_lines_of_a_kind_and_then_their_number() -> None:
    flood, written = Flood(0.0), 0
    for _ in range(MOST_LINES + 5):
        flood, is_written = admit(flood)
        written += is_written
    assert (written, flood.left_out) == (10, 5)
    assert not is_over(flood, WINDOW - 1)
    assert is_over(flood, WINDOW)
    line = summary(told(Raised(ERROR)), 5)
    assert line.text.startswith("5 more like this within a minute, the last one: mail.send j1 failed")
    assert (line.level, line.fields["left_out"], line.trace) == (logging.WARNING, 5, "")


def test_lines_of_one_kind_have_one_task_and_one_cause() -> None:
    other = replace(ERROR, type="KeyError")
    kinds = [told(Raised(ERROR)).kind, told(Raised(other)).kind, told(Raised(ERROR), a_job(attempt=3)).kind]
    assert len(set(kinds)) == 3
    assert told(Raised(replace(ERROR, message="another")), a_job(attempt=2)).kind == kinds[0]
