"""Lines: which calls share a connection, which must not, and how many statements they send."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests import postgres_server
from treadle.core.filter import parse
from treadle.core.job import Job, State
from treadle.core.outcome import Succeeded
from treadle.storages.postgres import PostgresStorage, desk, lines
from treadle.storages.postgres.connect import Connection, Refused, Target
from treadle.storages.postgres.sql import Schema
from treadle.storages.postgres.talk import Talk
from treadle.testing.conformance.builders import a_job, a_unique_job, finished, only
from treadle.testing.conformance.steps import a_live_pod, ids, look, put, start, take

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")

DEADLINE = 5.0  # of a call: who waits for another's lock waits as long
PROMPT = 4.0


@pytest.fixture
async def storage() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), call_deadline=DEADLINE)
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
async def admin() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_server.shared_url())
    yield connection
    await connection.close()


async def sessions(admin: Any, storage: PostgresStorage) -> int:
    found = await admin.fetchval(
        "select count(*) from pg_stat_activity where application_name = $1", f"treadle {storage.schema_name}"
    )
    return int(found)


# Connections ---------------------------------------------------------------------------------------------------------


class Reluctant(Target):
    """A busy server: it says that it will not have us, and the next time it says nothing until the deadline."""

    asked = 0

    async def connect(self, deadline: float) -> Connection:
        self.asked += 1
        if self.asked == 1:
            raise Refused('role "nobody" does not exist')
        await asyncio.sleep(60)
        raise AssertionError


async def test_who_was_refused_is_told_so_however_slow_the_second_try_is() -> None:
    """It was told that nobody answered, which may pass; so a worker with a wrong password tried again and again."""
    target = Reluctant("postgresql://", "test")
    line = lines.Line(target, Schema("treadle"), 0.3)
    with pytest.raises(Refused, match="does not exist"):
        await line.run(lambda: nothing())
    assert target.asked == 2


def nothing() -> Talk[None]:
    yield "select 1", ()


async def test_a_line_that_nobody_needs_is_closed_and_opened_again(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "KEEP_ASIDE", 0.2)
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    pod = await a_live_pod(storage)
    for _ in range(2):
        assert await storage.get([]) == []
        assert await sessions(admin, storage) >= 1
        async with asyncio.timeout(5.0):
            while await sessions(admin, storage) > 0:
                await asyncio.sleep(0.05)
    # Those for jobs and beats stay, however seldom they are used.
    await storage.insert([a_job()])
    assert await take(storage, pod)
    await asyncio.sleep(0.5)
    assert await sessions(admin, storage) == 2
    await storage.close()
    assert await sessions(admin, storage) == 0


async def test_one_loop_has_three_connections_for_a_crowd_and_five_at_most(
    storage: PostgresStorage, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the Heart and of the listener come on top: five as a rule, seven at most."""
    monkeypatch.setattr(lines, "A_MOMENT", 60.0)  # a loaded machine is no counterexample
    pod = await a_live_pod(storage)

    async def crowd() -> None:
        calls = [[storage.get([]), storage.insert([a_unique_job()]), storage.insert([a_job()])] for _ in range(30)]
        await asyncio.gather(*(call for each in calls for call in each), take(storage, pod), storage.lead(pod, 15.0))

    await crowd()
    assert await sessions(admin, storage) == 3
    monkeypatch.setattr(lines, "A_MOMENT", 0.0)
    await crowd()
    assert await sessions(admin, storage) == 5


async def test_readers_do_not_wait_for_those_who_wait_for_keys(storage: PostgresStorage, admin: Any) -> None:
    await storage.insert([a_job()])
    transaction = admin.transaction()
    await transaction.start()
    for key in "abcd":
        await admin.execute(f"select {storage.schema_name}.enqueue('work', unique_key => $1)", key)
    waiting = [asyncio.create_task(storage.insert([a_unique_job(key)])) for key in "abcd"]
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await asyncio.gather(storage.get([]), storage.queues(), storage.insert([a_job()]))
    assert time.monotonic() - began < PROMPT
    await transaction.rollback()
    assert [only(each).outcome for each in await asyncio.gather(*waiting)] == ["inserted"] * 4


async def test_who_leads_holds_up_no_finish(storage: PostgresStorage, admin: Any) -> None:
    """They go the same way: a row that somebody holds is passed over."""
    pod = await a_live_pod(storage)
    job = await start(storage, pod)
    assert await storage.lead(pod, 15.0) == 1
    transaction = admin.transaction()
    await transaction.start()
    await admin.execute(f"select 1 from {storage.schema_name}.leader for update")
    began = time.monotonic()
    assert await storage.lead(pod, 15.0) is None
    assert only(await storage.apply([finished(job, Succeeded())])).accepted
    assert time.monotonic() - began < PROMPT
    await transaction.rollback()
    assert await storage.lead(pod, 15.0) == 1


# Statements ----------------------------------------------------------------------------------------------------------


class Counted:
    """How many statements were sent."""

    def __init__(self) -> None:
        self.statements = 0

    def __call__(self, talk: Talk[Any]) -> Talk[Any]:
        try:
            asked = next(talk)
            while True:
                self.statements += 1
                try:
                    rows = yield asked
                except Exception as error:
                    asked = talk.throw(error)
                else:
                    asked = talk.send(rows)
        except StopIteration as stop:
            return stop.value


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    counted = Counted()
    carry = lines.carry

    async def carried(connection: Any, talk: Talk[Any], schema: Any) -> Any:
        return await carry(connection, counted(talk), schema)

    monkeypatch.setattr(lines, "carry", carried)
    return counted


async def running(storage: PostgresStorage, count: int) -> list[Job]:
    pod = await a_live_pod(storage)
    await put(storage, *(a_job() for _ in range(count)))
    return list(await take(storage, pod))


async def test_finishes_with_follow_ups_share_their_statements(storage: PostgresStorage, counted: Counted) -> None:
    """One by one, each costs eight."""
    jobs = await running(storage, 100)
    await storage.insert([a_job(queue="next")])  # the lane is known
    changes = [finished(job, Succeeded(follow_ups=(a_job(queue="next"), a_job(queue="next")))) for job in jobs]
    counted.statements = 0
    assert all(answer.accepted for answer in await storage.apply(changes))
    assert counted.statements == 5
    assert sum((await storage.count(parse("queue:next"))).values()) == 201


async def test_finishes_of_concurrent_callers_share_theirs_too(storage: PostgresStorage, counted: Counted) -> None:
    jobs = await running(storage, 100)
    await storage.insert([a_job(queue="next")])
    changes = [finished(job, Succeeded(follow_ups=(a_job(queue="next"),))) for job in jobs]
    counted.statements = 0
    answers = await asyncio.gather(*(storage.apply([change]) for change in changes))
    assert all(only(answer).accepted for answer in answers)
    assert counted.statements == 10  # the first went alone, the others together


async def test_a_follow_up_that_cannot_be_stored_refuses_its_finish_alone(storage: PostgresStorage) -> None:
    jobs = await running(storage, 5)
    following = [a_job(queue="next", reason="a\x00b" if n == 2 else None) for n in range(5)]
    changes = [finished(job, Succeeded(follow_ups=(new,))) for job, new in zip(jobs, following, strict=True)]
    answers = await storage.apply(changes)
    assert [answer.accepted for answer in answers] == [True, True, False, True, True]
    assert (await look(storage, jobs[2].id)).state is State.RUNNING
    assert len(await ids(storage, "queue:next")) == 4


async def test_a_follow_up_with_a_key_that_somebody_holds_keeps_only_its_own_finish(
    storage: PostgresStorage, admin: Any
) -> None:
    jobs = await running(storage, 2)
    transaction = admin.transaction()
    await transaction.start()
    await admin.execute(f"select {storage.schema_name}.enqueue('work', unique_key => 'k')")
    keyed, plain = (
        asyncio.create_task(storage.apply([finished(job, Succeeded(follow_ups=(new,)))]))
        for job, new in zip(jobs, (a_unique_job("k", queue="next"), a_job(queue="next")), strict=True)
    )
    async with asyncio.timeout(PROMPT):
        assert only(await plain).accepted
    assert not keyed.done()
    await transaction.rollback()
    assert only(await keyed).accepted
