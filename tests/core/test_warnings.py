"""What is wrong in the cluster and will not mend itself."""

from __future__ import annotations

from treadle.core.pod import Pod, PodCard
from treadle.core.queue import Queue, QueueStats
from treadle.core.warnings import PATIENCE, DueTask, find, ripe, tell


def a_pod(queues: dict[str, int], *tasks: str, lost: bool = False) -> Pod:
    card = PodCard(id="p", label="p", host="h", pid=1, version="", queues=queues, tasks=tasks, lease=30.0)
    return Pod(card=card, started_at=0.0, beat_at=0.0, lease_left=30.0, lost=lost)


def a_queue(name: str = "mail", ready: int = 1, **more: float) -> QueueStats:
    return QueueStats(queue=Queue(name=name), ready=ready, **more)  # type: ignore[arg-type]


def test_a_queue_with_work_that_nobody_serves() -> None:
    (found,) = find([a_queue(oldest_ready_seconds=7.0)], [a_pod({"other": 1})], [])
    assert (found.code, found.subject, found.seconds) == ("TREADLE-D013", "queue mail", 7.0)
    assert found.text == "queue mail has 1 job ready, and no live pod serves it"
    assert found.remedy == "treadle worker -q mail"
    assert ripe([found]) == (found,)


def test_ready_jobs_are_counted_to_the_last() -> None:
    (found,) = find([a_queue(ready=12_345)], [], [])
    assert "has 12,345 jobs ready" in found.text


def test_an_empty_queue_and_one_that_is_served_are_no_concern() -> None:
    assert find([a_queue("empty", 0), a_queue("mail", 3)], [a_pod({"mail": 1}, "send")], []) == ()


def test_lost_pods_serve_nothing() -> None:
    (found,) = find([a_queue()], [a_pod({"mail": 1}, lost=True)], [])
    assert found.kind == "unserved"


def test_a_task_that_no_pod_of_its_queue_knows() -> None:
    pods = [a_pod({"mail": 1}, "send"), a_pod({"other": 1}, "sned")]  # known, but not where its jobs are
    due = [DueTask("mail", "sned", 3, 301.0), DueTask("mail", "send", 3, 999.0)]
    (found,) = find([a_queue()], pods, due)
    assert (found.code, found.subject) == ("TREADLE-D020", "task sned in queue mail")
    assert "no live pod of queue mail knows the task sned" in found.text


def test_where_nobody_serves_the_queue_its_tasks_are_not_told_beside_it() -> None:
    (found,) = find([a_queue()], [], [DueTask("mail", "send", 1, 999.0)])
    assert found.kind == "unserved"


def test_a_task_is_shown_once_its_jobs_have_waited_long_enough() -> None:
    pods = [a_pod({"mail": 1}, "send")]
    young = find([a_queue()], pods, [DueTask("mail", "new", 1, PATIENCE - 1)])
    assert ripe(young) == ()
    old = find([a_queue()], pods, [DueTask("mail", "new", 1, PATIENCE)])
    assert ripe(old) == old


def test_each_subject_is_told_once_and_an_unknown_task_only_after_a_while() -> None:
    pods = [a_pod({"mail": 1}, "send")]
    found = find([a_queue(), a_queue("lost")], pods, [DueTask("mail", "new", 1, 9999.0)])
    since, told, say = tell(found, {}, frozenset(), 1000.0)
    assert [each.subject for each in say] == ["queue lost"]
    since, told, say = tell(found, since, told, 1000.0 + PATIENCE - 1)
    assert say == ()
    since, told, say = tell(found, since, told, 1000.0 + PATIENCE)
    assert [each.subject for each in say] == ["task new in queue mail"]
    assert tell(found, since, told, 9000.0)[2] == ()


def test_a_task_that_was_known_in_between_begins_anew() -> None:
    found = find([a_queue()], [a_pod({"mail": 1}, "send")], [DueTask("mail", "new", 1, 9999.0)])
    since, told, _ = tell(found, {}, frozenset(), 0.0)
    since, told, _ = tell((), since, told, 100.0)
    assert (since, told) == ({}, frozenset())
    assert tell(found, since, told, PATIENCE + 1)[2] == ()


def test_what_comes_back_is_told_again() -> None:
    found = find([a_queue()], [], [])
    since, told, say = tell(found, {}, frozenset(), 0.0)
    assert say
    since, told, _ = tell((), since, told, 1.0)
    assert tell(found, since, told, 2.0)[2] == found
