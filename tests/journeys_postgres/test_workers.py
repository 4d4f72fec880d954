"""Workers die, and nothing on this host or any other can prove it: their leases must end."""

from __future__ import annotations

import time

import pytest

from tests.journeys.stage import QUICK, Worker

from .stage import PostgresStage

CLAIMABLE = QUICK["lease"] + 1.5 * QUICK["scan"]  # P7, at a tenth
BUSY = 2.0  # what a loaded machine may add


@pytest.mark.slow
def test_ten_kills_in_a_row_are_made_good_within_a_lease(stage: PostgresStage) -> None:
    """A1, A8, P7. Two workers are killed in turn while they run something, and started again; a third looks after what
    they leave behind, until it is killed itself, and somebody else must first take the lead."""
    leader = _start(stage)
    stage.wait(lambda: leader.said("this pod leads"), "it leads")
    workers = [_start(stage), _start(stage)]
    killed: list[tuple[Worker, list[str]]] = []
    for number in range(9):
        victim = workers[number % 2]
        killed.append((victim, _kill(stage, victim)))
        workers[number % 2] = _start(stage, ready=False)
    for worker in workers:
        stage.wait(worker.is_serving, "both serve again")
    stage.drain()
    for victim, held in killed:
        if held:
            stage.recovery(victim, held)
    assert len(stage.tally.recoveries) >= 6, "most kills should have met a worker with jobs in hand"
    assert max(stage.tally.recoveries) < CLAIMABLE + BUSY, stage.tally.recoveries

    if held := _kill(stage, leader):
        stage.figures["after the leader's death, s"] = took = stage.recovery(leader, held)
        assert took < CLAIMABLE + QUICK["leader_ttl"] + QUICK["beat"] + BUSY
    stage.drain()
    assert {job["state"] for job in stage.jobs().values()} == {"succeeded"}


def _start(stage: PostgresStage, *, ready: bool = True) -> Worker:
    return stage.start(queues="default:3", ready=ready)


def _kill(stage: PostgresStage, victim: Worker) -> list[str]:
    """Kill it while it runs something; answers with the jobs it has left behind."""
    stage.wait(victim.is_serving, "the victim serves")
    pods = stage.pods_of(victim.pid)
    stage.wait(lambda: _has_in_hand(stage, pods), "the victim runs something")
    victim.kill()
    return stage.held_by(pods)


def _has_in_hand(stage: PostgresStage, pods: list[str]) -> bool:
    if stage.held_by(pods):
        return True
    stage.act("sleep", seconds=0.4, count=1)
    time.sleep(0.05)
    return False
