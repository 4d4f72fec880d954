from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from treadle.core import attention
from treadle.core.attention import Act, Cause, Evidence, Item, find, grouped, queues_that
from treadle.core.fact import Fact
from treadle.core.failing import Failing, Runs
from treadle.core.job import ErrorEntry, Job, State
from treadle.core.pod import Pod, PodCard
from treadle.core.queue import Queue, QueueStats
from treadle.core.schedule_view import ScheduleView
from treadle.core.series import Point, Series, Spread
from treadle.core.streak import Streak
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


def test_a_worker_that_was_started_since_doctor_looked_is_seen_at_once() -> None:
    alone = [Fact("TREADLE-D010", "warn", "no live pod")]
    leaderless = [Fact("TREADLE-D012", "warn", "no pod leads")]
    assert only(facts=alone, pods=[pod(state="lost", running=0, beat_at=NOW - timedelta(days=1))])
    assert kinds(facts=alone, pods=[pod()]) == []
    assert only(facts=leaderless, pods=[pod()])
    assert kinds(facts=leaderless, pods=[pod(leader=True)]) == []


def test_of_many_of_a_kind_some_are_shown_and_the_others_counted() -> None:
    items = [Item(kind="a", subject=str(n), level="error", text=f"a {n}", page="queues") for n in range(5)]
    items += [Item(kind="b", level="warn", text="b")]
    found = grouped(items, 2)
    assert [item.text for item in found] == ["a 0", "a 1", "… and 3 more of the same kind", "b"]
    assert found[2].page == "queues" and found[2].level == "error" and found[2].measure == 3
    assert grouped(items) == tuple(items)


def test_thousands_of_queues_with_one_trouble_are_one_row() -> None:
    paused = [queue(f"q{n}", paused=True, ready=1, paused_at=NOW - timedelta(seconds=n)) for n in range(5_000)]
    (item,) = grouped(find(Evidence(now=NOW, queues=paused)))
    assert item.text == "5,000 queues are paused, and jobs wait in them: q0, q1, q2…"
    assert (item.page, item.show, item.measure, item.seconds, item.at_least) == (
        "queues",
        "paused",
        5_000,
        4_999.0,
        False,
    )
    some = [*paused[:11], queue("z", paused=True, ready=1, paused_at=None)]
    (item,) = grouped(find(Evidence(now=NOW, queues=some)))
    assert item.at_least  # of one of them nobody knows since when


def test_the_queues_that_a_row_is_about() -> None:
    late = {"ready": 3, "oldest_ready_seconds": 400.0}
    queues = [
        queue("unserved", **late), queue("behind", pods=1, **late), queue("paused", pods=1, paused=True, **late),
        queue("cooling", pods=1, cool_until=NOW + timedelta(seconds=5)), queue("well", pods=1, ready=1),
    ]  # fmt: skip
    for show in ("unserved", "behind", "paused", "cooling"):
        assert [each.name for each in queues_that(show, queues, NOW)] == [show]


def test_an_item_names_the_act_that_mends_it() -> None:
    late = {"ready": 3, "oldest_ready_seconds": 400.0, "pods": 1}
    jobs = Act("jobs", "state:ready queue:mail")
    assert only(queues=[queue(paused=True, ready=1)]).acts == (Act("resume", "mail"),)
    assert only(queues=[queue(cool_until=NOW + timedelta(seconds=5))]).acts == (Act("warm", "mail"),)
    assert only(queues=[queue(**late)]).acts == (jobs,)
    assert only(queues=[queue(rate=1.0, **late)]).acts == (Act("rate", "mail"), jobs)
    assert only(queues=[queue(max_workers=2, **late)]).acts == (Act("scale", "mail"), jobs)
    assert only(schedules=[schedule(last_error="x")]).acts == (Act("edit", "nightly"), Act("fire", "nightly"))
    assert only(pods=[pod(stuck_threads=1)]).acts == only(pods=[pod(loop_lag=9.0)]).acts == (Act("stacks", "p1"),)
    cause = Cause(cause="pay:Declined:", type="Declined", place="", retrying=False)
    given_up = only(failing=[fails()], causes={("mail", "pay"): cause})
    assert given_up.acts == (Act("revive", 'state:failed queue:mail cause:"pay:Declined:"'),)
    late_fact = Fact("TREADLE-D016", "error", "schedule a should have fired 5m ago")
    assert only(facts=[late_fact]).acts == (Act("fire", "a"),)


def test_since_when_as_history_and_the_storage_tell() -> None:
    hour = Streak(NOW.timestamp() - 1800)
    item = only(failing=[fails()], streaks={("failing", "mail", "pay"): hour})
    assert (item.seconds, item.at_least) == (1800.0, False)
    assert only(failing=[fails()]).seconds is None
    behind = queue(pods=1, ready=9, oldest_ready_seconds=600.0)
    assert only(queues=[behind]).seconds == 600.0
    longer = only(queues=[behind], streaks={("behind", "mail", ""): hour._replace(at_least=True)})
    assert (longer.seconds, longer.at_least) == (1800.0, True)
    cooling = queue(cool_until=NOW + timedelta(seconds=5))
    assert only(queues=[cooling], streaks={("cooling", "mail", ""): hour}).seconds == 1800.0
    assert only(schedules=[schedule(last_error="x", due_at=NOW - timedelta(seconds=9))]).seconds == 9.0
    assert only(poison=1, last_poison=NOW - timedelta(seconds=7)).seconds == 7.0
    gone = pod(state="lost", running=1, beat_at=NOW - timedelta(seconds=60))
    stuck = [item for item in find(Evidence(now=NOW, stuck=1, pods=[gone])) if item.kind == "stuck"]
    assert stuck[0].seconds == 60.0


def _series(*points: tuple[dict[str, int], float | None]) -> Series:
    def spread(most: float | None) -> Spread:
        return Spread(int(most is not None), most, most, most, most, most)

    made = [
        Point(
            at=NOW - timedelta(minutes=len(points) - n), outcomes=outcomes, wait=spread(wait), run=spread(None),
            total=spread(None),
        )
        for n, (outcomes, wait) in enumerate(points)
    ]  # fmt: skip
    return Series(step=60.0, points=tuple(made), whole=made[0])


def test_how_long_a_queue_was_behind_or_cooled_down_is_in_its_history() -> None:
    calm, late = ({"succeeded": 1}, 1.0), ({"succeeded": 1}, 400.0)
    own = _series(*[calm] * 12, late, ({}, None), late)
    assert attention.history_of("behind", [own, _series(*[calm] * 15)]) == Streak(NOW.timestamp() - 180)
    assert attention.history_of("behind", [_series(calm)]) is attention.history_of("behind", []) is None
    throttled = _series(({"throttled": 1}, None), ({}, None))
    assert attention.history_of("cooling", [throttled]) == Streak(NOW.timestamp() - 120, at_least=True)


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
    assert (item.remedy, item.advice) == ("", "deploy a worker")
    assert (item.subject, item.filter) == ("x", "state:ready queue:mail task:t")


def fails(queue: str = "mail", task: str = "pay", **given: Any) -> Failing:
    fields: dict[str, Any] = {"runs": Runs(857, 860), "over": 300.0, "usual": 0.0} | given
    return Failing(queue=queue, task=task, **fields)


def test_a_task_that_fails_is_named_with_its_cause_and_where_to_look() -> None:
    item = only(failing=[fails()])
    assert item.text == "task pay in queue mail fails: 857 of 860 runs in the last 5m (100 %)"
    assert (item.level, item.page, item.filter) == ("error", "failures", "")
    assert item.remedy == "treadle jobs failures --queue mail --task pay"
    cause = Cause(cause="pay:Declined:shop:pay", type="Declined", place="shop:pay", retrying=True)
    told = only(failing=[fails(usual=0.02, muted=3)], causes={("mail", "pay"): cause})
    assert told.text.endswith("(100 %, usually 2 %), mostly Declined in shop:pay; 3 of muted causes not counted")
    assert told.filter == 'is:retrying queue:mail cause:"pay:Declined:shop:pay"'
    given_up = structs.replace(cause, retrying=False, place="")
    told = only(failing=[fails()], causes={("mail", "pay"): given_up})
    assert told.text.endswith("mostly Declined")
    assert told.filter == 'state:failed queue:mail cause:"pay:Declined:shop:pay"'


def test_a_queue_that_fails_is_named_without_a_task() -> None:
    cause = Cause(cause="pay:Declined:", type="Declined", place="", retrying=True)
    item = only(failing=[fails(task="")], causes={("mail", ""): cause})
    assert item.text.startswith("queue mail fails: ")
    assert (item.remedy, item.filter) == (
        "treadle jobs failures --queue mail",
        'is:retrying queue:mail cause:"pay:Declined:"',
    )


def test_pods_that_went_without_a_word() -> None:
    gone = pod(state="lost", beat_at=NOW - timedelta(minutes=2))
    item = only(pods=[gone])
    assert (item.level, item.seconds, item.text) == ("warn", 120.0, "1 pod lost without signing off: web-1")
    held = [replace(gone, runs={"mail": 2, "quiet": 0}), replace(gone, runs={"a": 2, "b": 1, "c": 1})]
    assert only(pods=held).text.endswith("; held 6 jobs of a, mail, b… at the last beat")
    assert only(pods=held[:1]).text.endswith("; held 2 jobs of mail at the last beat")


def test_pods_that_went_long_ago_are_told_only_while_jobs_of_theirs_are_left() -> None:
    gone = pod(state="lost", beat_at=NOW - timedelta(hours=2))
    assert kinds(pods=[gone]) == []
    assert only(pods=[replace(gone, running=1)]).level == "error"


def test_more_pods_than_one_names_are_cut() -> None:
    gone = pod(state="lost", beat_at=NOW - timedelta(minutes=2))
    item = only(pods=[replace(gone, running=2, label=f"web-{n}") for n in range(4)])
    assert item.level == "error"
    assert item.text == "4 pods lost without signing off: web-0, web-1, web-2…; 8 jobs of theirs to be rescued"


def test_poison_and_stuck_jobs() -> None:
    assert kinds(poison=1, stuck=2) == ["poison", "stuck"]
    assert "1 job crashed" in only(poison=1).text


def test_a_schedule_that_cannot_be_fired() -> None:
    assert only(schedules=[schedule(last_error="no zone")]).page == "schedules"
    assert kinds(schedules=[schedule(last_error="no zone", paused=True)]) == []


def test_a_paused_queue_is_told_at_once_if_jobs_wait_in_it() -> None:
    paused = queue(paused=True, paused_at=NOW - timedelta(seconds=5), ready=2753, pods=1, oldest_ready_seconds=300.4)
    item = only(queues=[paused])
    assert item.text == "queue mail is paused; 2,753 jobs wait, the oldest for 5m"
    assert (item.level, item.seconds, item.remedy) == ("warn", 5.0, "treadle queues resume mail")
    told = replace(paused, paused_by="ann", pause_reason="deploy", ready=1, oldest_ready_seconds=None, paused_at=None)
    assert only(queues=[told]).text == "queue mail is paused by ann: deploy; 1 job waits"
    assert "12,345 jobs wait" in only(queues=[replace(paused, ready=12_345, capped_at=10_000)]).text
    assert kinds(queues=[replace(paused, ready=0, paused_at=NOW - timedelta(days=9))]) == []


def test_a_queue_that_cools_or_is_behind() -> None:
    assert only(queues=[queue(cool_until=NOW + timedelta(seconds=90))]).text == "queue mail cools down for 1m30s more"
    assert kinds(queues=[queue(cool_until=NOW - timedelta(seconds=1))]) == []
    behind = queue(pods=1, ready=9, oldest_ready_seconds=600.0)
    assert only(queues=[behind]).kind == "behind"
    assert kinds(queues=[replace(behind, pods=0)]) == []  # that nobody serves it is told otherwise


def test_a_pod_whose_loop_is_blocked() -> None:
    item = only(pods=[pod(loop_lag=0.75)])
    assert item.remedy == "treadle pods stacks web-1" and item.text.endswith("was blocked for 750ms by something")
    item = only(pods=[pod(loop_lag=0.75, slow_task="resize")])
    assert item.text.endswith("by the task resize") and item.filter == "state:running task:resize"
    assert kinds(pods=[pod(loop_lag=0.5)]) == []
    assert only(pods=[pod(stuck_threads=1)]).kind == "stuck-threads"
    assert kinds(pods=[pod(loop_lag=9.0, stuck_threads=1, clock_skew=9.0, state="lapsed")]) == ["lost-pod"]


def test_a_machine_whose_clock_is_wrong() -> None:
    assert only(pods=[pod(clock_skew=2.34)]).text == (
        "the clock of h, where pod web-1 runs, is 2.3s ahead of the storage's, which decides"
    )
    assert "is 1.5s behind the" in only(pods=[pod(clock_skew=-1.5)]).text
    assert kinds(pods=[pod(clock_skew=-1.0)]) == []


def test_what_doctor_warns_of() -> None:
    low = Fact("TREADLE-DISK-ROOM", "warn", "7 MiB free on the disk", "make room")
    item = only(facts=[Fact("TREADLE-D001", "ok", "Python"), low])
    assert (item.kind, item.level, item.page) == ("disk", "warn", "system")
    assert (item.text, item.advice, item.remedy) == ("7 MiB free on the disk", "make room", "treadle doctor")
    behind = Fact("TREADLE-D003", "error", "schema 3 of 4: it must be migrated", "treadle db migrate")
    item = only(facts=[behind])
    assert (item.kind, item.level, item.remedy, item.advice) == ("schema", "error", "treadle db migrate", "")
    assert only(facts=[Fact("TREADLE-CLOCK-SKEW", "warn", "2 s away")]).kind == "clock"
    assert only(facts=[Fact("TREADLE-D010", "warn", "no live pod")]).page == "pods"
    assert only(facts=[Fact("TREADLE-FSYNC", "error", "off")]).kind == "doctor"


def test_schedules_that_were_missed_are_told_each() -> None:
    late = [Fact("TREADLE-D016", "error", f"schedule {name} should have fired 5m ago") for name in ("a", "b")]
    found = find(Evidence(now=NOW, facts=late))
    assert [(item.kind, item.subject, item.page) for item in found] == [
        ("missed", "TREADLE-D016 schedule a", "schedules"),
        ("missed", "TREADLE-D016 schedule b", "schedules"),
    ]


def test_what_is_told_from_fresh_evidence_is_not_told_twice() -> None:
    for code in ("D011", "D014", "D017", "D020", "D021"):
        assert kinds(facts=[Fact(f"TREADLE-{code}", "error", "x")]) == []
    assert kinds(facts=[Fact("TREADLE-D013", "error", "queue a has 3 jobs ready, and no live pod serves it")]) == []
    later = Fact("TREADLE-D013", "warn", "queue a has work for later, and no live pod serves it", "treadle worker -q a")
    assert only(facts=[later]).page == "queues"


def test_that_nobody_leads_is_told_when_it_lasts() -> None:
    none, low = Fact("TREADLE-D012", "warn", "no pod leads"), Fact("TREADLE-DISK-ROOM", "warn", "low")
    assert attention.lasting([none, low], []) == (low,)
    assert attention.lasting([none, low], [none]) == (none, low)
    assert attention.lasting([low], [none]) == (low,)


def test_since_when_is_since_it_was_first_seen() -> None:
    first = find(Evidence(now=NOW, stuck=1, queues=[queue(pods=1, ready=1, oldest_ready_seconds=600.0)]))
    told, seen = attention.remember(first, {}, 100.0)
    assert {item.kind: item.seconds for item in told} == {"stuck": 0.0, "behind": 600.0}
    assert {item.kind: item.at_least for item in told} == {"stuck": True, "behind": False}
    told, seen = attention.remember(find(Evidence(now=NOW, stuck=7)), seen, 130.0)
    assert [item.seconds for item in told] == [30.0] and "7 jobs" in told[0].text
    assert list(seen) == [("stuck", "")]  # what is over is forgotten
    assert attention.remember((), seen, 131.0) == ((), {})


def test_since_when_comes_out_the_same_a_moment_later() -> None:
    item = only(pods=[pod(state="lost", beat_at=NOW - timedelta(seconds=123))])
    assert item.since(NOW) == NOW - timedelta(seconds=130) == item.since(NOW + timedelta(seconds=2))
    assert only(stuck=1).since(NOW) is None


def test_the_share_of_muted_causes_is_that_of_recent_attempts() -> None:
    def failed(task: str, *times: float | None) -> Job:
        errors = tuple(
            ErrorEntry(attempt=n, kind="error", type="E", place="m:f", ended_at=at) for n, at in enumerate(times)
        )
        return Job(id="j", task=task, queue="q", state=State.FAILED, errors=errors)

    jobs = [failed("known", 100.0, 110.0), failed("new", 20.0, 105.0, None), failed("known", 50.0, 120.0)]
    assert attention.muted_share(jobs, {"known:E:m:f"}, since=100.0) == 3 / 4
    assert attention.muted_share(jobs, {"known:E:m:f"}, since=200.0) == 0.0


def test_the_main_cause_is_that_of_most_attempts_that_are_not_muted() -> None:
    def failed(task: str, type: str, state: State, at: float | None = 150.0, place: str = "shop:pay") -> Job:
        error = ErrorEntry(attempt=1, kind="timeout", type=type, place=place, ended_at=at)
        return Job(id="1", task=task, queue="q", state=state, args="{}", run_at=0.0, created_at=0.0, errors=(error,))

    jobs = [
        *[failed("pay", "Known", State.FAILED)] * 9,
        *[failed("pay", "Old", State.FAILED, at=50.0)] * 9,
        *[failed("pay", "Declined", State.SCHEDULED)] * 2,
        failed("pay", "", State.FAILED, place=""),
    ]
    cause = attention.main_cause(jobs, {"pay:Known:shop:pay"}, since=100.0)
    assert cause == Cause(cause="pay:Declined:shop:pay", type="Declined", place="shop:pay", retrying=True)
    timeout = attention.main_cause(jobs[-1:], (), since=100.0)
    assert timeout == Cause(cause="pay:timeout:", type="timeout", place="", retrying=False)
    assert attention.main_cause(jobs, (), since=200.0) is None


def test_errors_come_first() -> None:
    found = find(Evidence(now=NOW, stuck=1, schedules=[schedule(last_error="x")], pods=[pod(loop_lag=1.0)]))
    assert [item.level for item in found] == ["error", "warn", "warn"]


@pytest.mark.parametrize(
    ("code", "told"),
    [("TREADLE-SLOW-CLAIMS", ["slow-claims"]), ("TREADLE-OLD-SNAPSHOT", [])],
)
def test_a_long_transaction_is_told_once_it_slows_claims_down(code: str, told: list[str]) -> None:
    fact = Fact(code, "warn", "claims are slow, because session 7 …", "SELECT pg_terminate_backend(7)")
    items = find(Evidence(now=NOW, facts=[fact]))
    assert [item.kind for item in items] == told
    assert all(item.remedy == "SELECT pg_terminate_backend(7)" and not item.advice for item in items)
