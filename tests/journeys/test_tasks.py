"""Tasks that do what no task should."""

from __future__ import annotations

from .journey_app import act, plain
from .stage import Stage


def test_a_task_that_blocks_the_loop_beyond_the_lease_keeps_it_and_is_named(stage: Stage) -> None:
    """F1. The Heart has its own thread; the log shows the line that blocks."""
    stage.start(queues="idle:1")  # somebody who would rescue, if there were anything to rescue
    (id,) = stage.act("block", seconds=4.5)
    worker = stage.start(loop_lag=2.0)
    stage.drain()
    assert len(stage.claims(id)) == 1
    assert stage.job(id)["attempt"] == 1
    assert "the event loop has been blocked" in worker.log
    assert "time.sleep(seconds)" in worker.log
    assert worker.log.count("the event loop has been blocked") == 1


def test_a_loop_blocked_for_ever_ends_the_worker_and_its_jobs_are_rescued(stage: Stage) -> None:
    """F2, R21. Beyond the longest deadline among its runs and a grace, the Heart gives up: exit code 70. The grace is
    longer than a beat, so the worker is heard of after the deadline."""
    short = act.using(timeout="1s")
    ids = stage.enqueue(
        *(short.bind("gate", gate="never", until_attempt=1) for _ in range(2)),
        short.bind("block for ever", gate="never", until_attempt=1),
    )
    worker = stage.start()
    stage.wait(stage.began(*ids), "they run")
    assert worker.exit_code() == 70
    assert "time.sleep(0.01)" in worker.log or "is_open(gate)" in worker.log
    stage.start(overdue=1.0)
    stage.drain()
    assert {stage.state(id) for id in ids} == {"succeeded"}
    # Their deadlines had passed when the worker was lost: that is what ended them, and it counts as a crash.
    assert [error["kind"] for id in ids for error in stage.errors(id)] == ["timeout"] * 3
    assert {stage.job(id)["crashes"] for id in ids} == {1}


def test_a_task_without_a_deadline_may_block_the_loop_beyond_its_neighbours_deadline(stage: Stage) -> None:
    """R21. The limit is the longest among the runs, and a run without a deadline has the longest of all."""
    ids = stage.enqueue(
        act.using(timeout="1s").bind("gate", gate="never", until_attempt=1),
        act.using(timeout=None).bind("block", seconds=4.0),
    )
    worker = stage.start(overdue=1.0)
    stage.drain()
    assert {stage.state(id) for id in ids} == {"succeeded"}
    assert {each.pid for each in stage.effects()} == {worker.pid}


def test_nothing_that_a_task_raises_ends_the_worker(stage: Stage) -> None:
    """F5, F6, R46: it is that job's error."""
    worker = stage.start()
    ids = stage.enqueue(
        *(act.using(max_attempts=2).bind(what) for what in ("sys.exit", "interrupt", "odd")),
        *(plain.using(max_attempts=2).bind(what) for what in ("sys.exit", "interrupt")),
    )
    stage.drain()
    assert {(stage.job(id)["state"], stage.job(id)["attempt"], stage.job(id)["crashes"]) for id in ids} == {
        ("failed", 2, 0)
    }
    kinds = [(error["kind"], error["type"].rpartition(".")[2]) for id in ids for error in stage.errors(id)]
    raised = ["SystemExit", "KeyboardInterrupt", "Odd", "SystemExit", "KeyboardInterrupt"]
    assert kinds == [("error", name) for name in raised for _ in range(2)]
    (after,) = stage.act()
    stage.drain()
    assert stage.effects("effect", after)[0].pid == worker.pid


def test_F3_a_worker_with_too_many_deaf_runs_leaves_in_order_and_is_started_anew(stage: Stage) -> None:
    """Their slots are used again, so that one stays free for the rest; at the third it leaves with 70."""
    ids = stage.enqueue(*(act.using(timeout="300ms", max_attempts=1).bind("deaf", gate="never") for _ in range(3)))
    worker = stage.start(queues="default:2", abandoned=3, cancel_grace=0.2)
    assert worker.exit_code() == 70
    assert "runs were given up and go on: it stops, to be started anew" in worker.log
    assert "has stopped" in worker.log
    assert [stage.errors(id)[-1]["kind"] for id in ids] == ["timeout"] * 3
    (after,) = stage.act()
    stage.start()
    stage.drain()
    assert (stage.state(after), stage.job(after)["attempt"]) == ("succeeded", 1)
