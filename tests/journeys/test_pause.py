"""SIGSTOP and SIGCONT: pods that are neither dead nor alive."""

from __future__ import annotations

import signal

import pytest

from .journey_app import act
from .stage import Stage


@pytest.mark.parametrize("part", ["beat", "finish"])
def test_a_pod_stopped_beyond_its_lease_loses_its_jobs_and_comes_back_as_another(stage: Stage, part: str) -> None:
    """B1, P3. The zombie holds its flock, so nothing proves it dead: its lease decides. It wakes while its job runs
    elsewhere, under another token. Stopped before a beat it hears from that beat that it was lost, and stops its run;
    stopped before a finish, its finish is refused. (It stops outside any transaction: the others can write.)"""
    (id,) = stage.act("gate", gate="go")
    zombie = stage.start(point=(part, "group.before_begin", "SIGSTOP"))
    stage.wait(stage.began(id), "the job runs")
    if part == "finish":
        stage.open_gate("go.1")
    stage.wait(zombie.has_stopped, "the pod is stopped")
    neighbour = stage.start()
    stage.wait(lambda: len(stage.effects("began", id)) == 2, "the job runs again, in the neighbour")

    zombie.send(signal.SIGCONT)
    stage.wait(lambda: zombie.said("was declared lost"), "the zombie hears that it was lost")
    if part == "finish":
        stage.wait(lambda: zombie.said("came too late"), "its finish is refused")
    stage.wait(lambda: zombie.pid in stage.serving(), "it registers anew")
    assert stage.state(id) == "running"
    stage.open_gate("go")
    stage.drain()
    accepted = stage.job(id)["finished_token"]
    (effect,) = [each for each in stage.effects("effect", id) if each.token == accepted]
    assert effect.pid not in (zombie.pid, neighbour.pid), "in a child of the neighbour's: it is a suspect"
    assert len(stage.effects("effect", id)) == (2 if part == "finish" else 1)
    assert (stage.job(id)["attempt"], stage.job(id)["crashes"]) == (2, 1)

    neighbour.send(signal.SIGTERM)
    assert neighbour.exit_code() == 0
    later = stage.act(count=5)
    stage.drain()
    assert {each.pid for each in stage.effects("effect", *later)} == {zombie.pid}, "it goes on working"


@pytest.mark.parametrize("step", ["group.begun", "group.before_commit"])
@pytest.mark.parametrize("then", ["SIGCONT", "SIGKILL"])
def test_a_pod_stopped_inside_its_transaction_holds_the_others_up_but_ends_none(
    stage: Stage, step: str, then: str
) -> None:
    """B1, E14, P7: the one case in which a stopped process delays the others. Their calls meet their deadline, they
    wait, and go on by themselves when the lock is free."""
    bystander = stage.start(call=0.5)
    stage.wait(lambda: stage.pods_of(bystander.pid), "the bystander is registered")
    (long,) = stage.act("gate", gate="go")
    stage.wait(stage.began(long), "the bystander runs a job")
    holder = stage.start(queues="other:4", point=("claim", step, "SIGSTOP"), ready=False, call=0.5)
    other = stage.enqueue(*(act.using(queue="other").bind() for _ in range(3)))
    stage.wait(holder.has_stopped, "the holder is stopped inside its transaction")
    stage.open_gate("go")
    stage.wait(lambda: bystander.said("storage trouble"), "the bystander cannot write")
    assert f"process {holder.pid} holds" in bystander.log
    stage.wait(lambda: bystander.said("a beat was not answered"), "nor beat")
    assert bystander.lives
    assert stage.state(long) == "running"

    holder.send(signal.Signals[then])
    stage.wait(lambda: bystander.said("the storage answers again"), "the bystander goes on")
    stage.wait(lambda: bystander.said("beats are answered again"), "and is alive to all")
    if then == "SIGKILL":
        holder.was_killed()
        stage.start(queues="other:4")
    stage.drain()
    assert len(stage.claims(long)) == 1, "expiry alone takes nothing away"
    assert {stage.job(id)["crashes"] for id in other} == {0}, "a claim that was not committed never was"


def test_a_pod_stopped_for_less_than_its_lease_loses_nothing(stage: Stage) -> None:
    """B2. Nothing is rescued, nothing runs twice. It stops outside any transaction, so that the other can work on."""
    stopped = stage.start(lease=30.0, point=("beat", "group.before_begin", "SIGSTOP"))
    ids = stage.act("gate", gate="go", count=4)
    stage.wait(stage.began(*ids), "it runs four jobs")
    stage.wait(stopped.has_stopped, "it is stopped")
    neighbour = stage.start(lease=30.0)
    # For so long that the neighbour has beaten, led, looked for the dead and worked.
    stage.wait(lambda: neighbour.said("this pod leads"), "the neighbour leads")
    more = stage.act("sleep", seconds=0.2, count=40)
    stage.drain(*more)
    stage.open_gate("go")
    stopped.send(signal.SIGCONT)
    stage.drain()
    assert len(stage.claims()) == len(stage.effects()) == 44
    assert {each.pid for each in stage.effects("effect", *ids)} == {stopped.pid}
