"""SIGTERM: once, twice, three times, and to a supervisor."""

from __future__ import annotations

import os
import signal
import time

import pytest

from .journey_app import act, plain
from .stage import Stage

TERM = signal.SIGTERM


def test_a_stop_claims_nothing_more_and_lets_running_jobs_end(stage: Stage) -> None:
    """J1."""
    ids = stage.act("gate", gate="go", count=10)
    worker = stage.start(grace=20.0)
    stage.wait(lambda: len(stage.effects("began")) == 4, "its four slots are taken")
    stopped_at = time.time()
    worker.send(TERM)
    stage.wait(lambda: worker.said("stopping"), "it has heard the signal")
    stage.open_gate("go")
    assert worker.exit_code() == 0
    claims = stage.claims()
    assert len(claims) == 4
    assert max(claim.at for claim in claims) < stopped_at
    assert [stage.state(id) for id in ids].count("succeeded") == 4
    assert {stage.job(id)["attempt"] for id in ids if stage.state(id) == "ready"} == {0}
    assert not stage.ask("select * from treadle_pod"), "it has signed off"

    stage.start()
    stage.drain()
    assert len(stage.effects()) == 10


@pytest.mark.parametrize("step", ["group.before_begin", "group.before_commit"])
def test_a_claim_that_is_under_way_when_the_stop_comes_is_given_back(stage: Stage, step: str) -> None:
    """J1, P7. The pod had nothing to drain, and used to sign off before the answer: the jobs were left to rescue,
    and charged with a crash."""
    stage.act(count=3)
    worker = stage.start(point=("claim", step, "SIGTERM"), ready=False)
    assert worker.exit_code() == 0, worker.log
    assert {(job["state"], job["attempt"]) for job in stage.jobs().values()} == {("ready", 0)}
    assert len(stage.claims()) == 3
    stage.start()
    stage.drain()
    assert {(job["state"], job["attempt"], job["crashes"]) for job in stage.jobs().values()} == {("succeeded", 1, 0)}


def test_a_worker_that_stops_under_load_charges_nobody_for_it(stage: Stage) -> None:
    """J1, P7. Also a claim that was under way when the signal came is given back, or run to its end."""
    ids = stage.act("sleep", seconds=0.005, count=600)
    for _ in range(8):
        done = len(stage.effects())
        worker = stage.start(grace=20.0)
        stage.wait(lambda: len(stage.effects()) >= min(done + 20, 600), "it is busy")  # noqa: B023
        worker.send(TERM)
        assert worker.exit_code() == 0
        assert not stage.held_by(stage.pods_of(worker.pid))
        assert {job["state"] for job in stage.jobs().values()} <= {"ready", "succeeded"}
    stage.start()
    stage.drain()
    assert {stage.job(id)["crashes"] for id in ids} == {0}
    assert {stage.job(id)["attempt"] for id in ids} == {1}
    assert len(stage.effects()) == 600


def test_a_job_longer_than_the_grace_is_given_back_uncharged_and_done_elsewhere(stage: Stage) -> None:
    """J1. So is one that does not hear its cancel, and one in a thread: neither holds up the exit."""
    ids = stage.enqueue(act.bind("gate", gate="go"), act.bind("deaf", gate="go"), plain.bind("gate", gate="go"))
    worker = stage.start(grace=2.0)
    stage.wait(stage.began(*ids), "they run")
    worker.send(TERM)
    assert worker.exit_code(within=20) == 0
    assert {(job["state"], job["attempt"]) for job in stage.jobs().values()} == {("ready", 0)}
    stage.open_gate("go")
    stage.start()
    stage.drain()
    assert {(job["state"], job["attempt"], job["crashes"]) for job in stage.jobs().values()} == {("succeeded", 1, 0)}


def test_a_second_signal_hurries(stage: Stage) -> None:
    """J2: what can be cancelled is given back at once, and what cannot after its own grace, not that of the drain."""
    ids = stage.enqueue(act.bind("gate", gate="go"), act.bind("deaf", gate="go"), plain.bind("gate", gate="go"))
    worker = stage.start(grace=300.0, cancel_grace=1.0)
    stage.wait(stage.began(*ids), "they run")
    worker.send(TERM)
    stage.wait(lambda: worker.said("stopping"), "it has heard the first")
    worker.send(TERM)
    assert worker.exit_code(within=30) == 0
    assert {(job["state"], job["attempt"]) for job in stage.jobs().values()} == {("ready", 0)}
    stage.open_gate("go")
    stage.start()
    stage.drain()


def test_a_third_signal_ends_it_and_rescue_does_the_rest(stage: Stage) -> None:
    """J2."""
    ids = stage.enqueue(act.bind("deaf", gate="go"), plain.bind("gate", gate="go"))
    worker = stage.start(grace=300.0, cancel_grace=60.0)
    stage.wait(stage.began(*ids), "they run")
    worker.send(TERM)
    stage.wait(lambda: worker.said("stopping"), "it has heard the first")
    worker.send(signal.SIGINT)
    stage.wait(lambda: worker.said("hurrying"), "and the second")
    worker.send(TERM)
    assert worker.exit_code(within=30) == 75
    stage.open_gate("go")
    stage.start()
    stage.drain()
    assert {(job["state"], job["attempt"], job["crashes"]) for job in stage.jobs().values()} == {("succeeded", 2, 1)}


def test_a_supervisor_restarts_a_killed_child_and_passes_a_stop_on(stage: Stage) -> None:
    """A14, J1, for `worker --processes 2`."""
    supervisor = stage.start("--processes", "2", ready=False)
    stage.wait(lambda: len(stage.serving()) == 2, "both children serve")
    ids = stage.act("gate", gate="go", count=8)
    stage.wait(stage.began(*ids), "both are busy")
    victim, other = stage.serving()
    os.kill(victim, signal.SIGKILL)
    stage.tally.kills += 1
    stage.wait(lambda: len(stage.serving()) == 2 and victim not in stage.serving(), "another child takes its place")
    stage.wait(lambda: len(stage.effects("began")) == 12, "somebody has the dead one's jobs")
    stage.open_gate("go")
    stage.drain()
    assert other in stage.serving()
    supervisor.send(TERM)
    assert supervisor.exit_code() == 0
    assert not stage.ask("select * from treadle_pod where not lost")
