"""Workers die, and nothing on this host or any other can prove it: their leases must end."""

from __future__ import annotations

import time

from tests.journeys.stage import Worker

from .stage import PostgresStage


def test_ten_kills_in_a_row_are_made_good_within_a_lease(stage: PostgresStage) -> None:
    """A1, A8, P7. One of three workers is killed while it runs something, and started again. Claimable after lease +
    1.5 scans at the latest, and a beat more when the one that scans was killed too and another takes the lead."""
    workers = [stage.start(queues="default:3", ready=False) for _ in range(3)]
    for worker in workers:
        stage.wait(worker.is_serving, "it serves")
    killed: list[tuple[Worker, list[str]]] = []
    for number in range(10):
        victim = workers[number % 3]
        stage.wait(victim.is_serving, "the victim serves")
        pods = stage.pods_of(victim.pid)
        stage.wait(lambda: _has_in_hand(stage, pods), "the victim runs something")  # noqa: B023
        victim.kill()
        if held := stage.held_by(pods):
            killed.append((victim, held))
        workers[number % 3] = stage.start(queues="default:3", ready=False)
        time.sleep(0.3)
    stage.drain()
    for victim, held in killed:
        stage.recovery(victim, held)
    assert len(stage.tally.recoveries) >= 7, "most kills should have met a worker with jobs in hand"
    worst = 3.0 + 1.5 * 0.5 + 1.5 + 1.0 + 1.0  # lease, scan, the leader's own end, the new one's hold, and a busy host
    assert max(stage.tally.recoveries) < worst + 3.0, stage.tally.recoveries
    for worker in workers:
        stage.wait(worker.is_serving, "all serve again")
    assert {job["state"] for job in stage.jobs().values()} == {"succeeded"}


def _has_in_hand(stage: PostgresStage, pods: list[str]) -> bool:
    if held := stage.held_by(pods):
        return bool(held)
    stage.act("sleep", seconds=0.4, count=1)
    time.sleep(0.05)
    return False
