"""The server goes away, comes back, ends sessions, has no room, and will not be written to."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Generator
from typing import Any

import psycopg
import pytest

from tests.journeys.stage import PATIENCE

from .stage import Load, PostgresStage


@pytest.mark.slow
def test_a_server_restarted_under_load_loses_nothing(stage: PostgresStage) -> None:
    """C1, four times. Enqueues may fail while it is away; what returned is there."""
    stage.start_many()
    with stage.load() as load:
        for _ in range(4):
            _goes_on(stage, load)
            stage.server.stop("fast")
            stage.server.start()
            stage.resumes("a restart", within=15)
    stage.drain()
    assert stage.all_live()


@pytest.mark.slow
def test_a_server_killed_under_load_loses_nothing(stage: PostgresStage) -> None:
    """C2, three times, and once C3: one of its processes is killed, and it ends all sessions by itself. Commits whose
    answers were lost are settled by id and token."""
    stage.start_many()
    with stage.load() as load:
        for _ in range(3):
            _goes_on(stage, load)
            stage.kill_server()
            stage.server.start()
            stage.resumes("a kill of the server", within=15)
        os.kill(random.choice(stage.sessions()), signal.SIGKILL)
        stage.resumes("a kill of one backend", within=15)
    stage.drain()
    assert stage.all_live()


def _goes_on(stage: PostgresStage, load: Load) -> None:
    """Wait until enqueues and finishes are well under way (again)."""
    accepted, now = load.accepted, time.time()
    stage.wait(lambda: load.accepted >= accepted + 30 and stage.ended_since(now) >= 20, "work is under way")


def test_an_outage_longer_than_a_lease_costs_nobody_his_jobs(stage: PostgresStage) -> None:
    """C7, R22, R27, R29. When the server is back every lease is over, and nobody is taken for dead: nobody could beat.
    What ended meanwhile is written, under the claim that it was begun with."""
    workers = stage.start_many()
    running = stage.act("gate", gate="go", count=8)
    stage.wait(stage.began(*running), "both workers run jobs")
    stage.server.stop("fast")
    stage.open_gate("go")
    time.sleep(4.0)
    stage.server.start()
    stage.catches_up(within=20)
    assert stage.all_live()
    assert {(job["state"], job["attempt"]) for job in stage.jobs().values()} == {("succeeded", 1)}, stage.report()
    assert len(stage.effects("effect", *running)) == 8, "nothing ran twice"
    # One line when the trouble starts and one when it is over, for each of those who notice.
    assert max(len(worker.log.splitlines()) for worker in workers) < 25, workers[0].log


def test_a_table_locked_for_longer_than_a_lease_is_waited_for(stage: PostgresStage) -> None:
    """C13: somebody's DDL. Calls fail at their deadline and are sent again."""
    stage.start_many(call=1.5)
    running = stage.act("gate", gate="go", count=8)
    stage.wait(stage.began(*running), "both workers run jobs")
    with contextlib.closing(stage.connect()) as db, db.transaction():
        db.execute(f"lock table {stage.schema}.job in access exclusive mode")
        stage.open_gate("go")
        time.sleep(3.6)
    stage.catches_up(within=20)
    assert stage.all_live()
    assert {job["state"] for job in stage.jobs().values()} == {"succeeded"}
    stage.figures["attempts beyond the first"] = sum(job["attempt"] - 1 for job in stage.jobs().values())


def test_random_sessions_terminated_end_no_worker(stage: PostgresStage) -> None:
    """C4, twenty of them."""
    stage.start_many()
    ended = 0
    with stage.load():
        until = time.monotonic() + PATIENCE
        while ended < 20 and time.monotonic() < until:
            if pids := stage.sessions():
                ended += stage.terminate([random.choice(pids)])
            time.sleep(0.2)
    assert ended >= 20
    stage.drain()
    assert stage.all_live()
    assert stage.lost_pods() == 0, stage.report()


def test_a_lost_listening_session_is_restored_and_jobs_are_picked_up_at_once_again(stage: PostgresStage) -> None:
    """C5. With a poll of 20 s, only a wake can be quick."""
    stage.start(poll=20.0)
    stage.wait(lambda: _pickup(stage) < 1.0, "jobs are picked up at once")
    assert stage.terminate(stage.sessions(application_name="treadle", query="pg_notify")) >= 1
    stage.figures["back after, s"] = stage.wait(lambda: _pickup(stage) < 1.0, "wakes are heard again", within=15)
    latencies = sorted(_pickup(stage) for _ in range(20))
    stage.figures["pickup p50, ms"] = latencies[9] * 1000
    stage.figures["pickup worst, ms"] = latencies[-1] * 1000
    assert latencies[-1] < 2.0


def _pickup(stage: PostgresStage) -> float:
    """From the return of an enqueue to the claim of the job."""
    (id,) = stage.act()
    begun = time.monotonic()
    stage.wait(lambda: stage.effects("began", id), "the job runs", within=25)
    return stage.effects("began", id)[0].at - begun


def test_a_server_without_room_for_connections_costs_no_lease(stage: PostgresStage) -> None:
    """C11. Others take every connection, and take those over that a worker loses. The Heart keeps its own."""
    worker = stage.start()
    running = stage.act("gate", gate="go", count=3)
    stage.wait(stage.began(*running), "jobs run")
    # The pod itself beats once, when it joins, on the connection over which it then says that it leads.
    stage.wait(lambda: stage.sessions(query="term = case") and _hearts(stage), "the Heart has a connection")
    with Hogs(stage) as hogs:
        hearts = _hearts(stage)
        assert len(hearts) == 1
        until = time.monotonic() + 4.0  # longer than a lease
        while time.monotonic() < until or not worker.said("storage trouble"):
            stage.terminate(pid for pid in stage.sessions() if pid not in hearts)
            hogs.take()
            time.sleep(0.05)
            if time.monotonic() > until - 2.0:
                stage.open_gate("go")
        stage.wait(lambda: _hearts(stage) == hearts, "it beats on the same connection")
        assert not worker.said("a beat was not answered")
    stage.catches_up(within=15)
    assert stage.all_live()
    assert [job["attempt"] for job in stage.jobs().values()] == [1] * 3, "nothing was rescued"


def _hearts(stage: PostgresStage) -> list[int]:
    """The sessions that have last been used for a beat."""
    return stage.sessions(query="beat_pod_1")


class Hogs:
    """Sessions that do nothing but be there."""

    def __init__(self, stage: PostgresStage) -> None:
        self._stage = stage
        self._taken: list[psycopg.Connection[Any]] = []

    def __enter__(self) -> Hogs:
        self._stage.ask("select 1")  # the witness has its own
        self.take()
        return self

    def take(self) -> None:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                self._taken.append(self._stage.connect())

    def __exit__(self, *_: object) -> None:
        for each in self._taken:
            each.close()


def test_a_server_that_becomes_read_only_is_waited_for(stage: PostgresStage) -> None:
    """C10: a failover that left us at the standby. No worker exits, and work goes on when it may be written again."""
    workers = stage.start_many()
    running = stage.act("gate", gate="go", count=4)
    stage.wait(stage.began(*running), "jobs run")
    with stage.load():
        with _read_only(stage):
            stage.open_gate("go")
            for worker in workers:
                stage.wait(lambda: worker.said("read-only"), "it sees that nothing can be written")  # noqa: B023
            time.sleep(1.0)
            assert stage.all_live()
        stage.resumes("the server may be written to", within=15)
    stage.drain()
    assert stage.all_live()


@contextlib.contextmanager
def _read_only(stage: PostgresStage) -> Generator[None]:
    with contextlib.closing(stage.connect()) as db:
        try:
            db.execute("alter system set default_transaction_read_only = on")
            db.execute("select pg_reload_conf()")
            yield
        finally:
            db.execute("alter system reset default_transaction_read_only")
            db.execute("select pg_reload_conf()")
