"""Why is it not running: every link of the chain, and their order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from treadle.core.explain import Evidence, Explanation, explain, in_a_line, waits_in_own_queue
from treadle.core.job import ErrorEntry, Job, RetryOverride, State
from treadle.core.pod import Descriptor, Pod, PodCard, PodStats
from treadle.core.queue import Queue

NOW = 1_700_000_000.0


def a_job(**fields: Any) -> Job:
    given = {"id": "j1", "task": "send", "queue": "mail", "state": State.READY, "run_at": NOW - 60, "created_at": NOW}
    return Job(**{**given, **fields})


def a_pod(label: str = "web-1", *, live: bool = True, queues: Any = None, tasks: Any = ("send",), **fields: Any) -> Pod:
    card = PodCard(
        id=label, label=label, host="box", pid=1, version="1", queues=queues or {"mail": 2}, tasks=tasks, lease=30.0
    )
    return Pod(card=card, started_at=NOW, beat_at=NOW, lease_left=20.0 if live else -5.0, **fields)


def told(job: Job | None = None, **fields: Any) -> Explanation:
    return explain(Evidence(**{"now": NOW, "job": job or a_job(), "pods": [a_pod()], **fields}))


def codes(explanation: Explanation) -> list[str]:
    return [cause.code for cause in explanation.causes]


def test_a_job_that_has_just_become_ready_needs_no_act() -> None:
    found = told(a_job(run_at=NOW - 0.5))
    assert codes(found) == ["soon"]
    assert not found.blocked


def test_what_cannot_be_explained_is_said_to_be_so() -> None:
    found = told()
    assert codes(found) == ["unexplained"]
    assert "ready for 1m" in found.summary
    assert found.causes[0].remedy == "treadle doctor"


def test_a_task_whose_executor_is_down_everywhere_says_why() -> None:
    about = {"task send": Descriptor(executor="pool:thumbs")}
    broken = PodStats(troubles={"pool:thumbs": "pool thumbs: a worker ended: exit code 3"})

    def pod(label: str, stats: PodStats | None) -> Pod:
        found = a_pod(label, stats=stats)
        return msgspec.structs.replace(found, card=msgspec.structs.replace(found.card, about=about))

    found = told(pods=[pod("a", broken), pod("b", broken)])
    assert codes(found) == ["executor-down"]
    assert "a: pool thumbs: a worker ended: exit code 3" in found.summary
    assert found.blocked
    for well in (pod("b", PodStats()), pod("b", None), a_pod("b", stats=broken)):
        assert codes(told(pods=[pod("a", broken), well])) == ["unexplained"]


def test_a_paused_queue_names_who_when_why_and_how_to_resume() -> None:
    queue = Queue(name="mail", paused=True, paused_by="ada", paused_at=NOW - 60, pause_reason="provider down")
    found = told(queue=queue)
    assert found.summary == "ready: queue mail is paused by ada at 2023-11-14 22:12:20Z: provider down"
    assert found.causes[0].remedy == "treadle queues resume mail"
    assert found.blocked


def test_a_pause_that_ends_by_itself_blocks_nobody() -> None:
    found = told(queue=Queue(name="mail", paused=True, paused_until=NOW + 60))
    assert found.summary == "ready: queue mail is paused"
    assert (found.causes[0].until, found.blocked) == (NOW + 60, False)
    assert codes(told(queue=Queue(name="mail", paused=True, paused_until=NOW - 1))) == ["unexplained"]


def test_a_cooling_queue_says_for_how_long() -> None:
    found = told(queue=Queue(name="mail", cool_until=NOW + 90))
    assert found.summary == "ready: queue mail cools down after a throttle for 1m30s more"
    assert found.causes[0].until == NOW + 90
    assert codes(told(queue=Queue(name="mail", cool_until=NOW - 90))) == ["unexplained"]


def test_all_that_stands_in_the_way_is_told_not_only_the_first() -> None:
    found = told(queue=Queue(name="mail", paused=True, cool_until=NOW + 5, max_workers=0), pods=[])
    assert codes(found) == ["paused", "cooling", "no-workers-allowed", "no-pods"]


@pytest.mark.parametrize(
    ("pods", "code", "text"),
    [
        ([], "no-pods", "no worker is running"),
        ([a_pod(live=False)], "no-pods", "no worker is alive"),
        ([a_pod(queues={"other": 1})], "unserved", "no live worker serves queue mail (they serve other)"),
        ([a_pod(tasks=("x",))], "unknown-task", "no live worker of queue mail (there is 1) knows task send"),
        (
            [a_pod(tasks=("x",)), a_pod("web-2", queues={"other": 1})],
            "unknown-task",
            "web-2 knows it, but serves other queues",
        ),
        ([a_pod(tasks=("x",)), a_pod("web-2", tasks=())], "unknown-task", "no live worker of queue mail (there are 2)"),
        ([a_pod(wish="quiet")], "quiet", "claims nothing now: web-1"),
        ([a_pod(stats=PodStats(quiet=True))], "quiet", "claims nothing now: web-1"),
    ],
)
def test_nobody_who_could_run_it(pods: list[Pod], code: str, text: str) -> None:
    found = told(pods=pods)
    assert codes(found)[0] == code
    assert text in found.summary
    assert found.blocked


def test_a_pod_that_speaks_and_is_not_quiet_can_run_it() -> None:
    assert codes(told(pods=[a_pod(stats=PodStats())])) == ["unexplained"]


def test_many_names_are_cut() -> None:
    pods = [a_pod(queues={f"q{n}": 1 for n in range(7)})]
    assert "q0, q1, q2, q3, q4 and 2 more" in told(pods=pods).summary


def test_full_slots_say_with_what() -> None:
    running = [
        a_job(id=str(n), task=task, pod=pod, state=State.RUNNING)
        for n, (task, pod) in enumerate([("big", "web-1"), ("send", "web-1"), ("big", "web-2")])
    ]
    found = told(running=running, running_count=3, pods=[a_pod(), a_pod("web-2", queues={"mail": 1})])
    assert found.summary == "ready: all 3 slots of queue mail in 2 workers are taken (big ×2, send ×1)"


def full(*ages: float | None, **fields: Any) -> dict[str, Any]:
    """Both slots of the only worker are taken, by runs of these ages."""
    running = [
        a_job(id=str(n), pod="web-1", state=State.RUNNING, started_at=None if age is None else NOW - age)
        for n, age in enumerate(ages)
    ]
    return {"running": running, "running_count": len(running), **fields}


FOR_HOURS = a_job(run_at=NOW - 7_200)
FIVE = Queue(name="mail", max_workers=2)


@pytest.mark.parametrize(
    ("job", "fields", "code", "blocked"),
    [
        # Full slots are normal under load.
        (a_job(run_at=NOW - 9), full(9.0, 3.0), "slots-full", False),
        (a_job(run_at=NOW - 9), full(7_200.0, 7_200.0), "slots-full", False),  # it has waited for seconds only
        (FOR_HOURS, full(7_200.0, 9.0), "slots-full", False),  # one has begun lately: another has ended
        (FOR_HOURS, full(301.0, 300.0), "slots-full", True),
        (FOR_HOURS, full(None, None), "slots-full", False),  # nobody knows since when
        (FOR_HOURS, full(7_200.0, 9.0, queue=FIVE), "max-workers", False),
        (FOR_HOURS, full(7_200.0, 400.0, queue=FIVE), "max-workers", True),
        (a_job(run_at=NOW - 60), {}, "unexplained", False),
        (FOR_HOURS, {}, "unexplained", True),
        # What only time or a person ends.
        (a_job(), {"queue": Queue(name="mail", paused=True)}, "paused", True),
        (FOR_HOURS, {"queue": Queue(name="mail", paused=True, paused_until=NOW + 9)}, "paused", False),
        (FOR_HOURS, {"queue": Queue(name="mail", cool_until=NOW + 9)}, "cooling", False),
        (a_job(), {"queue": Queue(name="mail", max_workers=0)}, "no-workers-allowed", True),
        (a_job(), {"pods": []}, "no-pods", True),
        (a_job(), {"pods": [a_pod(queues={"other": 1})]}, "unserved", True),
        (a_job(), {"pods": [a_pod(tasks=())]}, "unknown-task", True),
        (a_job(), {"pods": [a_pod(wish="quiet")]}, "quiet", True),
        (FOR_HOURS, {"ahead": 9}, "behind", False),
        (FOR_HOURS, {"queue": Queue(name="mail", rate=0.1), "next_token": 9.0}, "rate", False),
    ],
)
def test_a_job_needs_action_where_time_alone_does_not_help(
    job: Job, fields: dict[str, Any], code: str, blocked: bool
) -> None:
    found = told(job, **fields)
    assert (codes(found)[0], found.blocked) == (code, blocked)


def test_slots_of_a_worker_that_could_not_run_it_are_nobodys_concern() -> None:
    """Its runs fill the queue, but not the places where this job could run; nor do free slots of a quiet one help."""
    running = [a_job(id=str(n), pod="old", state=State.RUNNING) for n in range(3)]
    old = a_pod("old", queues={"mail": 3}, tasks=("big",))
    assert codes(told(running=running, running_count=3, pods=[a_pod(), old])) == ["unexplained"]
    full = [a_job(id=f"f{n}", pod="web-1", state=State.RUNNING) for n in range(2)]
    quiet = a_pod("web-2", wish="quiet")
    assert codes(told(running=full, running_count=2, pods=[a_pod(), quiet])) == ["slots-full"]


def test_where_only_some_of_the_runs_were_read_the_beats_tell_the_rest() -> None:
    pod = a_pod(queues={"mail": 500}, stats=PodStats(running={"mail": 500}))
    some = [a_job(id=str(n), pod="web-1", state=State.RUNNING) for n in range(200)]
    found = told(running=some, running_count=500, pods=[pod])
    assert found.summary == "ready: all 500 slots of queue mail in 1 worker are taken (send ×200)"


def test_a_share_and_the_slots_of_a_whole_pod_are_told_apart_from_the_slots_of_the_queue() -> None:
    queue = Queue(name="mail", max_workers=4)
    running = [a_job(id="r", pod="web-1", state=State.RUNNING)]
    shared = a_pod(shares={"mail": 1})
    found = told(queue=queue, running=running, running_count=1, pods=[shared, a_pod("web-2", queues={"mail": 0})])
    assert found.causes[0].text == (
        "every worker that could run it is full: web-1 (its share of max_workers, 1), web-2 (its slots) (send ×1)"
    )
    card = msgspec.structs.replace(a_pod().card, slots=6)
    packed = msgspec.structs.replace(a_pod(), card=card, running=6)
    assert "web-1 (its 6 slots for all queues)" in told(pods=[packed]).summary
    assert codes(told(pods=[msgspec.structs.replace(packed, running=5)])) == ["unexplained"]


def test_attempts_are_counted_as_the_queues_override_has_them() -> None:
    queue = Queue(name="mail", retry=RetryOverride(max_attempts=3))
    error = ErrorEntry(attempt=1, kind="error", type="ValueError")
    job = a_job(state=State.SCHEDULED, run_at=NOW + 60, attempt=1, max_attempts=10, errors=(error,))
    assert "for attempt 2 of 3" in told(job, queue=queue).summary


def test_an_aging_queue_says_that_its_order_is_not_the_stored_one() -> None:
    assert "the queue ages" in told(queue=Queue(name="mail", aging=60.0), ahead=2).summary


def test_a_job_that_waits_for_its_own_full_queue_is_told_first() -> None:
    waiter = a_job(id="w", task="outer", state=State.RUNNING, pod="web-1")
    full: dict[str, Any] = {"running": [waiter], "running_count": 1, "pods": [a_pod(queues={"mail": 1})]}
    found = told(waiter=waiter, **full)
    assert codes(found) == ["own-queue", "slots-full"]
    assert found.blocked
    assert "job w (outer) waits for it in a slot of the same queue mail" in waits_in_own_queue(found)
    elsewhere = a_job(id="w", task="outer", state=State.RUNNING, queue="other")
    for other in ({"waiter": elsewhere, **full}, {"waiter": waiter}, full):
        found = told(**other)
        assert "own-queue" not in codes(found)
        assert waits_in_own_queue(found) == ""


def test_the_whole_chain_stands_in_a_line() -> None:
    failed = (ErrorEntry(attempt=1, kind="error", type="ValueError", message="no such user"),)
    job = a_job(state=State.SCHEDULED, attempt=1, errors=failed, run_at=NOW + 8)
    line = in_a_line(Evidence(now=NOW, job=job))
    assert line.startswith("scheduled: due in 8s at ")
    assert line.endswith(
        "no worker is running (treadle worker --queues mail); its last error was ValueError: no such user"
    )
    ended = a_job(state=State.FAILED, attempt=1, errors=failed)
    assert "its last error" not in in_a_line(Evidence(now=NOW, job=ended))


def test_the_clusters_limit_is_told_before_the_slots() -> None:
    found = told(queue=Queue(name="mail", max_workers=1), running_count=1)
    assert found.summary == "ready: queue mail runs 1 of max_workers 1"


def test_a_rate_says_when_the_next_claim_is_possible() -> None:
    found = told(queue=Queue(name="mail", rate=0.5), next_token=1.25)
    assert found.summary == "ready: queue mail has used up its rate of 0.5/s: the next claim is possible in 1.2s"
    assert found.causes[0].until == NOW + 1.25
    assert codes(told(queue=Queue(name="mail"), next_token=1.0)) == ["unexplained"]


@pytest.mark.parametrize(
    ("ahead", "capped", "text"),
    [
        (1, False, "1 job is before it in queue mail"),
        (1200, False, "1,200 jobs are before it in queue mail"),
        (10_000, True, "10,000 or more jobs are before it in queue mail"),
    ],
)
def test_the_jobs_before_it(ahead: int, capped: bool, text: str) -> None:
    assert told(ahead=ahead, ahead_capped=capped).summary == f"ready: {text}"


def test_one_crash_makes_a_suspect() -> None:
    found = told(a_job(crashes=1))
    assert codes(found) == ["suspect"]
    assert "crashed once: it runs apart from other jobs" in found.causes[0].text


def test_slow_claims_and_crashes_are_told_last() -> None:
    found = told(a_job(crashes=2), slow_claims="session 42 has held its snapshot for 3,600 s", ahead=1)
    assert codes(found) == ["behind", "old-snapshot", "suspect"]
    assert "crashed 2 times" in found.causes[2].text
    assert "session 42" in found.causes[1].text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "scheduled: due in 30s at 2023-11-14 22:13:50Z"),
        (
            {"attempt": 2, "errors": (ErrorEntry(attempt=2, kind="error", type="KeyError"),)},
            "for attempt 3 of 10; the last ended by error: KeyError",
        ),
        ({"throttles": 1}, "its queue was throttled once"),
        ({"snoozes": 3}, "it has snoozed 3 times"),
        ({"attempt": 2, "errors": (ErrorEntry(attempt=1, kind="error"),), "snoozes": 1}, "it has snoozed once"),
    ],
)
def test_a_scheduled_job_says_when_and_why_so_late(fields: dict[str, Any], text: str) -> None:
    found = told(a_job(state=State.SCHEDULED, run_at=NOW + 30, **fields))
    assert text in found.summary
    assert found.causes[0].until == NOW + 30
    assert not found.blocked


def test_a_scheduled_job_tells_today_what_will_stand_in_its_way() -> None:
    job = a_job(state=State.SCHEDULED, run_at=NOW + 30)
    assert codes(told(job, pods=[], queue=Queue(name="mail", paused=True))) == ["scheduled", "paused", "no-pods"]


def test_a_running_job_tells_where_since_when_and_until_when() -> None:
    job = a_job(state=State.RUNNING, pod="web-1", attempt=2, started_at=NOW - 90, deadline=NOW + 10, cancel_wanted=True)
    found = told(job)
    assert found.summary == "running: attempt 2 has been running on pod web-1 for 1m30s"
    assert codes(found) == ["running", "cancel-wanted", "deadline"]
    assert "has passed" in told(a_job(state=State.RUNNING, pod="web-1", deadline=NOW - 1)).causes[1].text


@pytest.mark.parametrize("pods", [[], [a_pod(live=False)]])
def test_a_run_whose_pod_is_gone_is_stuck_until_its_rescue(pods: list[Pod]) -> None:
    found = told(a_job(state=State.RUNNING, pod="web-1", attempt=1), pods=pods)
    assert codes(found) == ["stuck", "running"]
    assert "is rescued when its lease is over" in found.summary


def test_a_run_without_a_pod_can_be_told() -> None:
    assert "pod ?" in told(a_job(state=State.RUNNING)).summary


def test_a_waiting_job_waits_for_the_outside() -> None:
    answer = told(a_job(state=State.WAITING, deadline=NOW + 90))
    assert codes(answer) == ["waiting"]
    assert answer.causes[0].until == NOW + 90
    assert answer.summary.startswith("waiting: it waits for an outside answer until 20")
    assert told(a_job(state=State.WAITING)).summary == "waiting: it waits for an outside answer"
    late = told(a_job(state=State.WAITING, deadline=NOW - 1)).summary
    assert late == "waiting: no outside answer came in time: its attempt is being ended"


@pytest.mark.parametrize(
    ("state", "errors", "text"),
    [
        (State.SUCCEEDED, (), "it has succeeded at 2023-11-14 22:13:20Z, at attempt 1"),
        (State.CANCELLED, (), "it was cancelled at 2023-11-14 22:13:20Z"),
        (
            State.FAILED,
            (ErrorEntry(attempt=1, kind="error", type="KeyError"),),
            "it has failed at 2023-11-14 22:13:20Z, at attempt 1 of 3: error: KeyError",
        ),
        (State.FAILED, (ErrorEntry(attempt=1, kind="poison", message="lost 3 pods"),), "poison: lost 3 pods"),
    ],
)
def test_an_ended_job_tells_how(state: State, errors: Any, text: str) -> None:
    found = told(a_job(state=state, attempt=1, max_attempts=3, finished_at=NOW, errors=errors))
    assert text in found.summary
    assert bool(found.causes[0].remedy) == (state is not State.SUCCEEDED)


def test_a_damaged_instant_is_left_out() -> None:
    assert told(a_job(state=State.SUCCEEDED, finished_at=1e30)).summary == "succeeded: it has succeeded, at attempt 0"
    assert told(a_job(state=State.SUCCEEDED)).summary == "succeeded: it has succeeded, at attempt 0"
