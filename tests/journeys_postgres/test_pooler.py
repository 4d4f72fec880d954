"""PgBouncer in transaction mode: no session is anybody's own, and LISTEN is deaf without saying so."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest

from tests.pooler import Bouncer, a_bouncer
from tests.postgres_server import Server

from .stage import PostgresStage

DEAF = "LISTEN hears nothing"


@pytest.fixture
def bouncer(server: Server) -> Generator[Bouncer]:
    with a_bouncer(server.directory, server.port) as bouncer:
        yield bouncer


@pytest.fixture
def pooled(bouncer: Bouncer, stage_on: Callable[..., PostgresStage]) -> PostgresStage:
    return stage_on(bouncer.url)


def test_everything_works_behind_a_pooler_and_polling_takes_over(pooled: PostgresStage, bouncer: Bouncer) -> None:
    """C15. With one warning for each worker; also through a restart of the pooler, under load."""
    stage = pooled
    workers = stage.start_many()
    with stage.load():
        stage.wait(lambda: all(worker.said(DEAF) for worker in workers), "each finds that it is deaf")
        bouncer.stop()
        time.sleep(0.5)
        bouncer.start()
        stage.resumes("a restart of the pooler", within=15)
    stage.drain()
    latencies = sorted(_pickup(stage) for _ in range(10))
    stage.figures["pickup by polling each 100 ms, worst, ms"] = latencies[-1] * 1000
    assert latencies[-1] < 3.0
    assert stage.all_live()
    assert [worker.log.count(DEAF) for worker in workers] == [1, 1]
    assert stage.lost_pods() == 0
    assert not [line for worker in workers for line in worker.log.splitlines() if "prepared statement" in line]


def test_a_killed_worker_behind_a_pooler_is_replaced(pooled: PostgresStage) -> None:
    """Leases and the lead are rows, and no session's."""
    stage = pooled
    ids = stage.act("gate", gate="never", until_attempt=1, count=3)
    victim = stage.start()
    stage.wait(stage.began(*ids), "the jobs run")
    stage.start()
    victim.kill()
    stage.recovery(victim, ids)
    stage.drain()
    assert {(job["state"], job["attempt"], job["crashes"]) for job in stage.jobs().values()} == {("succeeded", 2, 1)}


def test_a_direct_way_for_wakes_makes_pickup_quick_again(pooled: PostgresStage) -> None:
    """TREADLE_LISTEN_URL, for the worker; the driver's own wakes go by NOTIFY, which a pooler lets through."""
    stage = pooled
    worker = stage.start(poll=20.0, listen_url=stage.server.url)
    stage.wait(lambda: _pickup(stage) < 1.0, "jobs are picked up at once")
    latencies = sorted(_pickup(stage) for _ in range(10))
    stage.figures["pickup by wakes, worst, ms"] = latencies[-1] * 1000
    assert latencies[-1] < 2.0
    assert not worker.said(DEAF)


def _pickup(stage: PostgresStage) -> float:
    (id,) = stage.act()
    begun = time.monotonic()
    stage.wait(lambda: stage.effects("began", id), "the job runs", within=25)
    return stage.effects("began", id)[0].at - begun
