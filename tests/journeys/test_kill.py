"""kill -9, at every step of a job's journey, again and again, and by the job itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from statistics import median

import pytest

from treadle import App

from .journey_app import once
from .stage import HERE, Stage, Worker

WRITES = ["group.before_begin", "group.begun", "group.before_commit", "group.after_commit"]
BUSY = 3.0  # what a loaded machine may add; the lease, of which a neighbour need not wait for the end, is 30 s


# One job, and a kill at each step of its journey ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "is_there"), [("group.before_commit", False), ("group.after_commit", True)], ids=["before", "after"]
)
def test_a_client_killed_around_the_commit_of_its_enqueue_leaves_all_its_jobs_or_none(
    stage: Stage, step: str, is_there: bool
) -> None:
    """A4, P1. Before the commit nobody was promised anything; after it the jobs run, though nobody heard the answer."""
    ids = [str(uuid.uuid4()) for _ in range(3)]
    client = subprocess.run(
        [sys.executable, str(HERE / "with_points.py"), "insert", step, "SIGKILL", "enqueue", *ids],
        cwd=HERE,
        env=stage.environ(),
        capture_output=True,
        text=True,
    )
    assert client.returncode == -9, client.stderr
    stage.tally.kills += 1
    stage.perhaps.update(ids)
    assert stage.jobs().keys() == (set(ids) if is_there else set())

    stage.start()
    stage.act(count=3)  # whatever the dead client held is free again
    stage.drain(*stage.known, *ids)


@pytest.mark.parametrize("step", WRITES)
def test_a_worker_killed_around_the_commit_of_its_claim_loses_no_job(stage: Stage, step: str) -> None:
    """A3, A4. A claim that was not committed never was, and costs nothing. One that was costs the attempt, and the
    neighbour has the job as soon as it sees that the claimer is gone."""
    ids = stage.act(count=3)
    victim = stage.start(point=("claim", step, "SIGKILL"), ready=False)
    victim.was_killed()
    has_claimed = step == "group.after_commit"
    assert not stage.effects("began"), "nothing may run before its claim is committed"
    assert {stage.state(id) for id in ids} == {"running" if has_claimed else "ready"}

    stage.start()
    if has_claimed:
        stage.recovery(victim, ids)
    stage.drain()
    _succeeded(stage, ids, attempts=2 if has_claimed else 1, crashes=1 if has_claimed else 0)


@pytest.mark.parametrize("how", ["known", "by name"])
def test_a_task_of_one_attempt_whose_worker_is_killed_runs_once(stage: Stage, how: str) -> None:
    """Whoever enqueues by name does not know the task's attempts, and the Rescuer took ten for granted: the task ran
    again. The pod that claims such a job writes them first."""
    if how == "known":
        ids = stage.enqueue(*(once.bind() for _ in range(3)))
    else:
        stranger = App(stage.url)  # it has no task
        ids = [stranger.enqueue_sync("once").id for _ in range(3)]
        stranger.close_sync()
        stage.known.update(ids)
    assert {stage.job(id)["max_attempts"] for id in ids} == {1 if how == "known" else None}
    victim = stage.start()
    stage.wait(stage.began(*ids), "the jobs run")
    victim.kill()
    stage.start()
    stage.drain()
    assert {stage.state(id) for id in ids} == {"failed"}
    assert len(stage.effects("began", *ids)) == 3
    assert [error["kind"] for id in ids for error in stage.errors(id)] == ["worker_lost"] * 3
    assert {(stage.job(id)["max_attempts"], stage.job(id)["timeout"]) for id in ids} == {(1, 60.0)}


def test_a_worker_killed_while_its_task_runs_is_replaced_by_its_neighbour(stage: Stage) -> None:
    """A1."""
    ids = stage.act("gate", gate="never", until_attempt=1, count=3)
    victim = stage.start()
    stage.wait(stage.began(*ids), "the jobs run")
    neighbour = stage.start()
    pods = stage.pods_of(neighbour.pid)
    victim.kill()
    stage.recovery(victim, ids)
    stage.drain()
    _succeeded(stage, ids, attempts=2, crashes=1)
    assert [move.pod for move in stage.history(*ids) if move.became == "succeeded"] == pods * 3
    assert neighbour.pid not in {each.pid for each in stage.effects()}, "in children of its own: they are suspects"
    assert [error["kind"] for id in ids for error in stage.errors(id)] == ["worker_lost"] * 3


def test_a_worker_killed_between_effect_and_finish_has_the_effect_twice_and_one_accepted_finish(stage: Stage) -> None:
    """A2. At least once, and never called anything else: the token tells the two effects apart."""
    (id,) = stage.act("effect, then gate", gate="never", until_attempt=1)
    victim = stage.start()
    stage.wait(lambda: stage.effects("effect", id), "the effect has happened")
    victim.kill()
    stage.start()
    stage.drain()
    _succeeded(stage, [id], attempts=2, crashes=1)
    first, second = stage.effects("effect", id)
    assert stage.job(id)["finished_token"] == second.token != first.token


@pytest.mark.parametrize("step", ["group.before_commit", "group.after_commit"])
def test_a_worker_killed_around_the_commit_of_a_finish_repeats_it_or_keeps_it(stage: Stage, step: str) -> None:
    """A4, P4. Before the commit the effect is repeated; after it the finish stands, though its pod never heard so."""
    ids = stage.act("gate", gate="go", count=3)
    victim = stage.start(point=("finish", step, "SIGKILL"))
    stage.wait(stage.began(*ids), "the jobs run")
    stage.open_gate("go")
    victim.was_killed()
    accepted = [id for id in ids if stage.state(id) == "succeeded"]
    # The finishes of one turn share a commit; those that came later were not sent yet.
    assert bool(accepted) == (step == "group.after_commit")

    stage.start()
    stage.drain()
    _succeeded(stage, accepted, attempts=1, crashes=0)
    _succeeded(stage, [id for id in ids if id not in accepted], attempts=2, crashes=1)


def _succeeded(stage: Stage, ids: list[str], *, attempts: int, crashes: int) -> None:
    for id in ids:
        job = stage.job(id)
        assert (job["state"], job["attempt"], job["crashes"]) == ("succeeded", attempts, crashes), stage.report()


# Again and again -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_twenty_kills_in_a_row_lose_nothing_and_are_made_good_within_two_seconds(stage: Stage) -> None:
    """A1, A8, A14, P7: leases, beats and looks for dead neighbours as they are by default. Three workers share 500
    jobs of 20 ms; one of them is killed while it runs some, and started again, twenty times."""

    def start() -> Worker:
        return stage.start(queues="default:3", neighbours=1.0, lease=30.0, beat=10.0, ready=False)

    workers = [start(), start(), start()]
    for number in range(20):
        victim, survivor = workers[number % 3], workers[(number + 1) % 3]  # the third may still be coming up again
        stage.wait(victim.is_serving, "the victim serves")
        stage.wait(survivor.is_serving, "the survivor serves")
        pods = stage.pods_of(victim.pid)
        stage.act("sleep", seconds=0.02, count=25)
        stage.wait(lambda: _is_busy(stage, pods), "the victim runs something")  # noqa: B023 - waited for right here
        victim.kill()
        restarts_at_once = number % 4 < 2  # else the neighbour must find the dead by itself
        if restarts_at_once:
            workers[number % 3] = start()
        if held := stage.held_by(pods):
            took = stage.recovery(victim, held)
            told = f"kill {number}: {took:.2f} s until a job of the dead was claimed\n{stage.report()}"
            assert took <= 2.0 + BUSY, told
        if not restarts_at_once:
            workers[number % 3] = start()
        stage.drain()  # a job that was met by three kills would be poison, and rightly so
    assert len(stage.jobs()) >= 500
    assert {job["state"] for job in stage.jobs().values()} == {"succeeded"}
    assert len(stage.tally.recoveries) >= 10, "most kills should have met a worker with jobs in hand"
    assert median(stage.tally.recoveries) <= 2.0, stage.tally.recoveries
    for worker in workers:
        stage.wait(worker.is_serving, "all serve again")


def _is_busy(stage: Stage, pods: list[str]) -> bool:
    """Whether they run something. If the others were quicker with all there was, there is more."""
    if stage.held_by(pods):
        return True
    if not stage.ask("select 1 from treadle_job where state = 'ready' limit 1"):
        stage.act("sleep", seconds=0.02, count=25)
    return False


# By the job itself ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["os._exit", "kill -9"])
@pytest.mark.slow
def test_a_poison_job_fails_after_three_crashes_and_takes_nobody_with_it(stage: Stage, how: str) -> None:
    """A5, A7, P6, R48. Ten jobs are claimed together with the poison and go down with it, once. From then on it runs
    in a child process: no other worker is lost, and the innocent, each in a child of its own, pay no more."""
    beside = stage.act("gate", gate="go", count=10)
    (poison,) = stage.act(how)
    first = stage.start(queues="default:11", ready=False)
    assert first.exit_code() == (1 if how == "os._exit" else -signal.SIGKILL)
    stage.open_gate("go.2")
    others = stage.act("sleep", seconds=0.02, count=20)
    second = stage.start(queues="default:11", suspects=3)
    stage.drain()
    job = stage.job(poison)
    assert (job["state"], job["crashes"], job["attempt"]) == ("failed", 3, 3)
    errors = stage.errors(poison)
    assert [error["kind"] for error in errors] == ["worker_lost", "worker_lost", "poison"]
    assert "child process" in errors[1]["message"]
    assert "child process" in errors[2]["message"]
    for id in [*beside, *others]:
        innocent = stage.job(id)
        assert innocent["state"] == "succeeded"
        assert (innocent["attempt"], innocent["crashes"]) == ((2, 1) if id in beside else (1, 0)), stage.report()
    assert second.lives
    assert {each.pid for each in stage.effects("began", *others)} == {second.pid}
    assert second.pid not in {each.pid for each in stage.effects("effect", *beside)}
    stage.tally.kills += 1
