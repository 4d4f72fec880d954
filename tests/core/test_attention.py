from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from treadle.core import attention
from treadle.core.attention import Evidence, Item, find
from treadle.core.pod import Pod, PodCard
from treadle.core.queue import Queue, QueueStats
from treadle.core.schedule_view import ScheduleView
from treadle.core.view import PodView, QueueView, pod_view, queue_view
from treadle.core.warnings import ClusterWarning

NOW = datetime(2026, 11, 16, 3, tzinfo=UTC)


def queue(name: str = "mail", **given: Any) -> QueueView:
    return replace(queue_view(QueueStats(queue=Queue(name=name)), []), **given)


def pod(label: str = "web-1", **given: Any) -> PodView:
    card = PodCard(id="p1", label=label, host="h", pid=1, version="1", queues={"mail": 1}, tasks=(), lease=30.0)
    made = Pod(card=card, started_at=0.0, beat_at=NOW.timestamp() - 5, lease_left=10.0)
    return replace(pod_view(made), **given)


def schedule(**given: Any) -> ScheduleView:
    fields: dict[str, Any] = dict.fromkeys(ScheduleView.__dataclass_fields__)
    return ScheduleView(**(fields | {"name": "nightly", "paused": False} | given))


def kinds(**given: Any) -> list[str]:
    return [item.kind for item in find(Evidence(now=NOW, **given))]


def only(**given: Any) -> Item:
    (item,) = find(Evidence(now=NOW, **given))
    return item


def test_where_all_is_well_nothing_is_said() -> None:
    calm = {"queues": [queue(ready=3, pods=1, oldest_ready_seconds=2.0)], "pods": [pod()], "schedules": [schedule()]}
    assert kinds(**calm) == []


def test_a_warning_of_the_cluster_comes_with_its_command() -> None:
    told = ClusterWarning(
        code="D013", kind="unserved", subject="queue mail", text="nobody", remedy="treadle worker -q mail", queue="mail"
    )
    item = only(warnings=[told])
    assert (item.level, item.remedy, item.filter) == ("error", "treadle worker -q mail", "state:ready queue:mail")


def test_a_remedy_in_words_is_no_command() -> None:
    told = ClusterWarning(
        code="D020", kind="unknown_task", subject="x", text="unknown", remedy="deploy a worker", queue="mail", task="t"
    )
    item = only(warnings=[told])
    assert (item.remedy, item.filter) == ("", "state:ready queue:mail task:t")


def test_many_bad_ends_are_told_and_few_runs_say_nothing() -> None:
    assert only(outcomes={"succeeded": 90, "failed": 4, "retried": 6}).kind == "failing"
    assert kinds(outcomes={"succeeded": 99, "failed": 1}) == []
    assert kinds(outcomes={"failed": attention.FEW_RUNS - 1}) == []


def test_pods_that_went_without_a_word() -> None:
    gone = pod(state="lost", beat_at=NOW - timedelta(minutes=2))
    item = only(pods=[gone])
    assert (item.level, item.seconds) == ("warn", 120.0)
    item = only(pods=[replace(gone, running=2, label=f"web-{n}") for n in range(4)])
    assert item.level == "error"
    assert item.text == "4 pods went without signing off: web-0, web-1, web-2…; 8 jobs of theirs to be rescued"


def test_poison_and_stuck_jobs() -> None:
    assert kinds(poison=1, stuck=2) == ["poison", "stuck"]
    assert "1 job crashed" in only(poison=1).text


def test_a_schedule_that_cannot_be_fired() -> None:
    assert only(schedules=[schedule(last_error="no zone")]).page == "schedules"
    assert kinds(schedules=[schedule(last_error="no zone", paused=True)]) == []


def test_a_long_pause_is_told_and_a_short_one_is_not() -> None:
    paused = queue(paused=True, paused_at=NOW - timedelta(hours=2), ready=5, pods=1, oldest_ready_seconds=9e3)
    assert only(queues=[paused]).text == "queue mail has been paused"
    told = replace(paused, paused_by="ann", pause_reason="deploy")
    assert only(queues=[told]).text == "queue mail has been paused by ann: deploy"
    assert kinds(queues=[replace(paused, paused_at=NOW)]) == []
    assert kinds(queues=[replace(paused, paused_at=None)]) == []


def test_a_queue_that_cools_or_is_behind() -> None:
    assert only(queues=[queue(cool_until=NOW + timedelta(seconds=90))]).text == "queue mail cools down for 1m30s more"
    assert kinds(queues=[queue(cool_until=NOW - timedelta(seconds=1))]) == []
    behind = queue(pods=1, ready=9, oldest_ready_seconds=600.0)
    assert only(queues=[behind]).kind == "behind"
    assert kinds(queues=[replace(behind, pods=0)]) == []  # that nobody serves it is told otherwise


def test_a_pod_whose_loop_is_blocked() -> None:
    assert only(pods=[pod(loop_lag=0.75)]).remedy == "treadle pods stacks web-1"
    assert only(pods=[pod(stuck_threads=1)]).kind == "stuck-threads"


def test_errors_come_first() -> None:
    found = find(Evidence(now=NOW, stuck=1, schedules=[schedule(last_error="x")], pods=[pod(loop_lag=1.0)]))
    assert [item.level for item in found] == ["error", "warn", "warn"]
