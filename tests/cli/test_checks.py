"""What doctor makes of what it sees. Codes are stable: people search for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from treadle.core import schedule as scheduling
from treadle.core.job import Job, State
from treadle.core.schedule import Plan, Progress, Schedule
from treadle.core.view import PodView, QueueView, job_view
from treadle.core.warnings import ClusterWarning
from treadle.operate import doctor
from treadle.ports import Fact, SchemaStatus

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def a_pod(**fields: object) -> PodView:
    whole = PodView(
        id="9f3a",
        label="9f3a",
        host="here",
        pid=1,
        version="0",
        state="live",
        leader=True,
        queues={"mail": 5},
        tasks=("send",),
        running=0,
        started_at=NOW,
        beat_at=NOW,
        lease_left=20.0,
    )
    return replace(whole, **fields)  # type: ignore[arg-type]


def a_queue(**fields: object) -> QueueView:
    whole = QueueView(
        name="mail",
        paused=False,
        ready=0,
        scheduled=0,
        waiting=0,
        running=0,
        succeeded=0,
        failed=0,
        cancelled=0,
        oldest_ready_seconds=None,
        max_workers=None,
        slots=5,
        pods=1,
        cool_until=None,
        paused_by=None,
        paused_at=None,
        pause_reason=None,
        paused_until=None,
        version=0,
        capped_at=10_000,
    )
    return replace(whole, **fields)  # type: ignore[arg-type]


def told(facts: list[Fact]) -> list[tuple[str, str]]:
    return [(fact.code.removeprefix("TREADLE-"), fact.level) for fact in facts]


def test_python() -> None:
    assert doctor.python().level == "ok"
    assert doctor.python((3, 10, 1)).level == "error"


def test_a_schema_that_must_be_migrated_names_the_command() -> None:
    assert doctor.schema(SchemaStatus(current=2, newest=2)).level == "ok"
    old = doctor.schema(SchemaStatus(current=1, newest=2))
    assert (old.level, old.remedy) == ("error", "treadle db migrate")
    assert doctor.schema(SchemaStatus(current=3, newest=2)).level == "warn"


def test_moments_from_the_future_show_a_wrong_clock() -> None:
    now = NOW.timestamp()
    job = job_view(Job(id="1", task="send", queue="mail", state=State.READY, created_at=now + 3600))
    assert doctor.clock(now, None, []).level == "ok"
    assert doctor.clock(now, None, [a_pod()]).level == "ok"
    assert "1h" in doctor.clock(now, job, []).text
    assert doctor.clock(now, None, [a_pod(beat_at=NOW + timedelta(hours=1))]).level == "error"
    assert doctor.clock(0.0, None, []).level == "error"


def test_pods() -> None:
    assert told(doctor.pods([a_pod()])) == [("D010", "ok")]
    assert told(doctor.pods([])) == [("D010", "warn")]
    assert told(doctor.pods([a_pod(), a_pod(state="lost")])) == [("D010", "ok"), ("D011", "warn")]
    assert told(doctor.pods([a_pod(leader=False)])) == [("D010", "ok"), ("D012", "warn")]


def test_work_in_a_queue_that_nobody_serves_is_an_error_and_work_for_later_a_warning() -> None:
    assert told(doctor.queues([a_queue(ready=3)])) == [("D013", "ok")]
    unserved = doctor.queues([a_queue(ready=3, pods=0)])
    assert told(unserved) == [("D013", "error")]
    assert unserved[0].remedy == "treadle worker -q mail"
    assert told(doctor.queues([a_queue(scheduled=3, pods=0)])) == [("D013", "warn")]
    assert told(doctor.queues([a_queue(succeeded=3, pods=0)])) == []


def test_a_paused_queue_says_who_and_why_and_how_to_go_on() -> None:
    _, paused = doctor.queues([a_queue(paused=True, paused_by="ann", pause_reason="provider down")])
    assert paused.text == "queue mail is paused by ann: provider down"
    assert paused.remedy == "treadle queues resume mail"


def test_a_queue_that_may_have_no_workers_is_shown() -> None:
    assert told(doctor.queues([a_queue(max_workers=0)]))[-1] == ("D015", "warn")


def test_tasks_that_no_live_pod_knows() -> None:
    unknown = ClusterWarning(
        code="TREADLE-D020", kind="unknown_task", subject="task gone", text="nobody knows it", remedy="…", queue="mail"
    )
    assert told(doctor.tasks([], has_pods=True)) == [("D020", "ok")]
    assert told(doctor.tasks([unknown], has_pods=True)) == [("D020", "error")]
    assert doctor.tasks([], has_pods=False) == []


def test_stuck_jobs() -> None:
    assert doctor.stuck({"running": 0}, has_pods=True).level == "ok"
    assert doctor.stuck({"running": 1}, has_pods=False).text.startswith("1 job running")


def test_every_code_is_written_as_people_search_for_it() -> None:
    facts = [
        doctor.python(),
        doctor.unreachable("away"),
        doctor.reachable("sqlite:///x.db", "1"),
        doctor.schema(SchemaStatus(current=1, newest=1)),
        doctor.clock(NOW.timestamp(), None, []),
        *doctor.pods([a_pod(leader=False), a_pod(state="lost")]),
        *doctor.queues([a_queue(paused=True, max_workers=0)]),
        *doctor.tasks([], has_pods=True),
        doctor.stuck({}, has_pods=True),
    ]
    assert all(fact.code.startswith("TREADLE-D0") and len(fact.code) == 12 for fact in facts)


def a_schedule(cursor: float, **fields: Any) -> Schedule:
    made = scheduling.add("poll", scheduling.check(Plan(expression="every 10s", task="t", queue="q")), 1000.0)
    progress = Progress(cursor=cursor, last_error=fields.pop("error", None))
    return msgspec.structs.replace(made.schedule, progress=progress, **fields)


def test_a_schedule_that_is_not_fired_is_late() -> None:
    (fine,) = doctor.schedules([a_schedule(1000.0)], 1040.0, has_leader=True)
    assert (fine.code, fine.level) == ("TREADLE-D016", "ok")
    (late,) = doctor.schedules([a_schedule(1000.0)], 1100.0, has_leader=True)
    assert (late.code, late.level) == ("TREADLE-D016", "error")
    assert "poll should have fired 1m30s ago" in late.text
    (alone,) = doctor.schedules([a_schedule(1000.0)], 1100.0, has_leader=False)
    assert (alone.level, "may lead" in alone.remedy) == ("warn", True)


def test_a_schedule_that_was_removed_or_waits_is_not_late() -> None:
    assert doctor.schedules([a_schedule(1000.0, removed_at=1001.0)], 9000.0, has_leader=True) == []
    paused = msgspec.structs.replace(a_schedule(1000.0).plan, paused=True)
    (fine,) = doctor.schedules([a_schedule(1000.0, plan=paused)], 9000.0, has_leader=True)
    assert fine.level == "ok"


def test_a_schedule_that_cannot_be_fired_says_why() -> None:
    unread = scheduling.of_text("poll", 1, "{", "{}")
    for each in (a_schedule(1000.0, error="out of range"), unread):
        (fact,) = doctor.schedules([each], 1001.0, has_leader=True)
        assert (fact.code, fact.level) == ("TREADLE-D017", "error")
