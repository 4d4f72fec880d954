"""Jobs, queues and pods as people read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.core.catalog import Known
from treadle.core.explain import Cause, Explanation
from treadle.core.job import NEVER, ErrorEntry, Job, RetryOverride, State
from treadle.core.pod import Descriptor, Pod, PodCard, PodStats
from treadle.core.queue import FOR_EVER, Queue, QueueStats
from treadle.core.view import as_json, explanation_view, job_view, pod_view, queue_view, row_of, task_view

AT = 1_700_000_000.125
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 125_000, tzinfo=UTC)
TEXT = "2023-11-14T22:13:20.125Z"


def a_job(**fields: Any) -> Job:
    return Job(
        **{"id": "a", "task": "send", "queue": "mail", "state": State.READY, "run_at": AT, "created_at": AT, **fields}
    )


def an_error(**fields: Any) -> ErrorEntry:
    entry = {"attempt": 1, "kind": "error", "type": "KeyError", "message": "'x'", "place": "app:send", "ended_at": AT}
    return ErrorEntry(**{**entry, **fields})


def a_pod(queues: dict[str, int] | None = None, **fields: Any) -> Pod:
    card = PodCard(
        id="pod",
        label="web-1",
        host="box",
        pid=7,
        version="1.2",
        queues=queues or {"mail": 3},
        tasks=("send",),
        lease=30.0,
        worker_version="2026.11.3",
    )
    return Pod(**{"card": card, "started_at": AT, "beat_at": AT, "lease_left": 12.5, **fields})


FULL = a_job(
    state=State.FAILED,
    args='{"n":[1,2]}',
    result='"x"',
    meta='{"tenant":9}',
    attempt=2,
    max_attempts=3,
    priority=-5,
    timeout=60.0,
    started_at=AT,
    finished_at=AT,
    deadline=AT,
    pod="pod",
    slot="mail-1-web",
    tags=("vip",),
    reason="because",
    unique_key="k:1",
    cancel_wanted=True,
    crashes=1,
    snoozes=2,
    throttles=3,
    warning="careful",
    error_count=40,
    errors=(
        an_error(type="OSError"),
        an_error(type="ValueError", place=""),
        an_error(attempt=2, trace="Traceback", pod="pod", started_at=AT),
    ),
)


def test_a_job_has_the_documented_fields_in_json() -> None:
    error = {
        "kind": "error",
        "type": "KeyError",
        "message": "'x'",
        "place": "app:send",
        "ended_at": TEXT,
    }
    first = {**error, "attempt": 1, "trace": "", "pod": None, "started_at": None}
    last = {**error, "attempt": 2, "trace": "Traceback", "pod": "pod", "started_at": TEXT}
    assert as_json(job_view(FULL)) == {
        "id": "a",
        "task": "send",
        "queue": "mail",
        "state": "failed",
        "attempt": 2,
        "max_attempts": 3,
        "priority": -5,
        "run_at": TEXT,
        "created_at": TEXT,
        "started_at": TEXT,
        "finished_at": TEXT,
        "deadline": TEXT,
        "timeout": 60.0,
        "pod": "pod",
        "slot": "mail-1-web",
        "args": {"n": [1, 2]},
        "result": "x",
        "error": last,
        "errors": [{**first, "type": "OSError"}, {**first, "type": "ValueError", "place": ""}, last],
        "error_count": 40,
        "tags": ["vip"],
        "reason": "because",
        "meta": {"tenant": 9},
        "unique_key": "k:1",
        "cancel_wanted": True,
        "crashes": 1,
        "snoozes": 2,
        "throttles": 3,
        "warning": "careful",
        "progress": None,
        "kept": None,
        "behind": None,
        "waits": None,
    }


def test_a_waiting_job_shows_until_when_it_waits() -> None:
    waiting = job_view(replace(FULL, state=State.WAITING, run_at=NEVER))
    assert as_json(waiting)["waits"] == {"until": TEXT, "since": TEXT}
    assert as_json(waiting)["run_at"] == TEXT
    assert job_view(replace(FULL, state=State.WAITING, behind="other")).waits is None
    ended = job_view(replace(FULL, run_at=NEVER, deadline=None))
    assert (ended.waits, as_json(ended)["run_at"]) == (None, TEXT)
    assert job_view(replace(FULL, run_at=NEVER, deadline=None, started_at=None)).run_at.year == 9999


def test_what_is_printed_is_json() -> None:
    for view in (job_view(FULL), queue_view(QueueStats(queue=Queue(name="mail")), []), pod_view(a_pod())):
        assert json.loads(json.dumps(as_json(view))) == as_json(view)


def test_a_job_as_a_python_value_has_moments_in_utc() -> None:
    view = job_view(FULL)
    assert view.run_at == view.finished_at == MOMENT
    assert view.error is not None
    assert view.error is view.errors[-1]
    assert view.error.ended_at == MOMENT


def test_a_fresh_job_has_nothing_to_show() -> None:
    view = job_view(a_job())
    assert (view.started_at, view.finished_at, view.deadline, view.error, view.errors) == (None, None, None, None, ())
    assert (view.args, view.result, view.meta, view.progress) == ({}, None, None, None)


def test_a_damaged_row_is_still_shown() -> None:
    assert job_view(a_job(args='{"broken' + "x" * 500)).args == {"undecodable": ('{"broken' + "x" * 500)[:200]}


@pytest.mark.parametrize(("seconds", "year"), [(1e300, 9999), (float("inf"), 9999), (-1e300, 1)])
def test_a_time_that_no_calendar_has_is_shown_as_its_edge(seconds: float, year: int) -> None:
    assert job_view(a_job(run_at=seconds)).run_at.year == year


def test_a_queue_has_the_documented_fields_in_json() -> None:
    queue = Queue(
        name="mail",
        version=4,
        paused=True,
        paused_by="ann",
        paused_at=AT,
        pause_reason="broken",
        paused_until=AT,
        max_workers=9,
        cool_until=AT,
        cool_exponent=2,
        rate=1.5,
        burst=3,
        aging=60.0,
        timeout=0.0,
        retry=RetryOverride(max_attempts=4, curve="fixed"),
        keep_succeeded=0.0,
        keep_failed=FOR_EVER,
    )
    said = Descriptor(description="Mail", owner="ops", tags=("m",))
    drift = ("owner: two say two",)
    known = Known(kind="queue", name="mail", descriptor=said, pods=(), seen_at=AT, stale=False, drift=drift)
    stats = QueueStats(
        queue=queue,
        ready=1,
        scheduled=2,
        waiting=3,
        running=4,
        succeeded=5,
        failed=6,
        cancelled=7,
        oldest_ready_seconds=8.5,
    )
    pods = [a_pod(), a_pod({"mail": 4, "other": 1}), a_pod({"other": 9}), a_pod(lost=True), a_pod(lease_left=0.0)]
    assert as_json(queue_view(stats, pods, known)) == {
        "name": "mail",
        "paused": True,
        "ready": 1,
        "scheduled": 2,
        "waiting": 3,
        "running": 4,
        "succeeded": 5,
        "failed": 6,
        "cancelled": 7,
        "oldest_ready_seconds": 8.5,
        "max_workers": 9,
        "slots": 7,
        "pods": 2,
        "cool_until": TEXT,
        "paused_by": "ann",
        "paused_at": TEXT,
        "pause_reason": "broken",
        "paused_until": TEXT,
        "version": 4,
        "capped_at": 10_000,
        "cool_exponent": 2,
        "rate": 1.5,
        "burst": 3,
        "aging": 60.0,
        "timeout": 0.0,
        "max_attempts": 4,
        "backoff": "fixed",
        "backoff_base": None,
        "backoff_cap": None,
        "cool_base": None,
        "cool_cap": None,
        "keep_succeeded": 0.0,
        "keep_failed": "forever",
        "keep_cancelled": None,
        "description": "Mail",
        "owner": "ops",
        "docs": "",
        "tags": ["m"],
        "drift": ["owner: two say two"],
    }


def test_a_task_has_the_documented_fields_in_json() -> None:
    said = Descriptor(
        description="Sends", owner="ops", docs="https://wiki", tags=("m",), queue="mail", executor="thread"
    )
    known = Known(kind="task", name="send", descriptor=said, pods=("a",), seen_at=AT, stale=False, drift=("x",))
    assert as_json(task_view(known)) == {
        "name": "send",
        "queue": "mail",
        "description": "Sends",
        "owner": "ops",
        "docs": "https://wiki",
        "tags": ["m"],
        "pods": ["a"],
        "seen_at": TEXT,
        "stale": False,
        "drift": ["x"],
        "executor": "thread",
    }


def test_a_quiet_queue_shows_no_times() -> None:
    view = queue_view(QueueStats(queue=Queue(name="mail")), [])
    assert (view.cool_until, view.paused_at, view.paused_until, view.slots, view.pods) == (None, None, None, 0, 0)


def test_a_pod_has_the_documented_fields_in_json() -> None:
    stats = PodStats(
        running={"mail": 2},
        cpu_seconds=1.5,
        rss_bytes=9,
        loop_lag=0.1,
        slow_task="send",
        clock_skew=-0.5,
        threads=3,
        stuck_threads=1,
        abandoned=2,
        children=4,
    )
    pod = a_pod(running=2, leader=True, stats=stats, wish_by="ann", shares={"mail": 2}, stacks_at=AT)
    assert as_json(pod_view(pod)) == {
        "id": "pod",
        "label": "web-1",
        "host": "box",
        "pid": 7,
        "version": "1.2",
        "state": "live",
        "leader": True,
        "queues": {"mail": 3},
        "tasks": ["send"],
        "running": 2,
        "started_at": TEXT,
        "beat_at": TEXT,
        "lease_left": 12.5,
        "worker_version": "2026.11.3",
        "wish": "serve",
        "wish_by": "ann",
        "can_lead": True,
        "slots": None,
        "shares": {"mail": 2},
        "runs": {"mail": 2},
        "cpu_seconds": 1.5,
        "rss_bytes": 9,
        "loop_lag": 0.1,
        "slow_task": "send",
        "clock_skew": -0.5,
        "threads": 3,
        "stuck_threads": 1,
        "abandoned": 2,
        "children": 4,
        "stacks_at": TEXT,
    }


@pytest.mark.parametrize(
    ("fields", "state", "lease_left"),
    [
        ({}, "live", 12.5),
        ({"lease_left": 0.0}, "lapsed", 0.0),
        ({"lease_left": -3.0}, "lapsed", 0.0),
        ({"lost": True}, "lost", 12.5),
        ({"wish": "quiet"}, "quiet", 12.5),
        ({"wish": "stop"}, "stopping", 12.5),
    ],
)
def test_a_pod_is_live_lapsed_or_lost(fields: dict[str, Any], state: str, lease_left: float) -> None:
    view = pod_view(a_pod(**fields))
    assert (view.state, view.lease_left) == (state, lease_left)
    assert view.live is (state in ("live", "quiet", "stopping"))


def test_the_filter_sees_the_job() -> None:
    row = row_of(FULL, stuck=True)
    assert (row.id, row.state, row.queue, row.task, row.tags) == ("a", "failed", "mail", "send", ("vip",))
    assert (row.cause, row.error_text) == ("send:KeyError:app:send", "KeyError: 'x'")
    assert (row.unique_key, row.pod, row.priority, row.attempt) == ("k:1", "pod", -5, 2)
    assert (row.created_at, row.run_at, row.started_at, row.finished_at) == (AT, AT, AT, AT)
    assert (row.reason, row.args, row.meta, row.result) == ("because", {"n": [1, 2]}, {"tenant": 9}, "x")
    assert (row.cancel_wanted, row.crashes, row.throttles, row.stuck) == (True, 1, 3, True)
    assert (row.schedule, row.parent) == (None, None)


def test_the_filter_sees_a_fresh_job() -> None:
    row = row_of(a_job(), stuck=False)
    assert (row.cause, row.error_text, row.meta, row.stuck, row.started_at) == (None, None, {}, False, None)


def test_the_filter_sees_where_a_job_came_from() -> None:
    row = row_of(a_job(meta='{"treadle:parent":"p","treadle:schedule":"nightly"}'), stuck=False)
    assert (row.parent, row.schedule) == ("p", "nightly")


def test_meta_that_is_no_object_comes_from_nowhere() -> None:
    row = row_of(a_job(meta="[1]"), stuck=False)
    assert (row.parent, row.schedule, row.meta) == (None, None, {})


def test_an_explanation_has_instants_where_it_had_seconds() -> None:
    cause = Cause(code="scheduled", text="due later", until=AT)
    found = explanation_view(Explanation(id="a", state=State.SCHEDULED, summary="due later", causes=(cause,)))
    assert found.causes[0].until == MOMENT
    assert as_json(found) == {
        "id": "a",
        "state": "scheduled",
        "summary": "due later",
        "blocked": False,
        "causes": [{"code": "scheduled", "text": "due later", "until": TEXT, "remedy": ""}],
    }


def test_a_timeout_is_called_so_in_older_rows_too() -> None:
    stopped = an_error(kind="timeout", type="asyncio.exceptions.CancelledError", message="ran past its timeout of 1 s")
    view = job_view(a_job(state=State.FAILED, errors=(stopped,)))
    assert view.error is not None
    assert (view.error.kind, view.error.type, view.error.place) == ("timeout", "", "app:send")
    told = row_of(a_job(errors=(replace(stopped, type=""),)), stuck=False)
    assert told.error_text == "timeout: ran past its timeout of 1 s"
