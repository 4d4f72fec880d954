"""Bulk by COPY: when it is used, and what happens when it cannot be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests import postgres_server
from treadle.storages.postgres import PostgresStorage, binary, bulk
from treadle.storages.postgres.talk import COPY, BadValue, Talk
from treadle.testing.conformance.builders import a_job
from treadle.testing.conformance.steps import a_live_pod, take

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    yield storage
    await storage.close()


def spoken(talk: Talk[Any], *answers: Any) -> list[str]:
    """The statements of a talk, by their first word, when it is answered so. An exception is thrown at it."""
    said: list[str] = []
    given = iter(answers)
    try:
        text, _ = next(talk)
        while True:
            said.append(text.split()[0])
            answer = next(given, [])
            text, _ = talk.throw(answer) if isinstance(answer, Exception) else talk.send(answer)
    except StopIteration:
        return said


JOBS = [a_job() for _ in range(bulk.LEAST)]
MAY, MAY_NOT = [(None, True)], [(None, False)]


def test_many_jobs_go_by_copy_and_few_by_one_statement() -> None:
    assert spoken(bulk.insert_many(JOBS, None), [], MAY) == ["begin", "select", COPY, "select", "commit"]
    assert COPY not in spoken(bulk.insert_many(JOBS[1:], None))


def test_what_has_ended_already_is_looked_for_one_by_one_only_if_something_is_near() -> None:
    said = spoken(bulk.insert_many(JOBS, None), [], MAY, [], [()])
    assert said == ["begin", "select", COPY, "select", "delete", "commit"]


def test_a_refused_copy_is_undone_and_inserted() -> None:
    said = spoken(bulk.insert_many(JOBS, None), [], MAY, BadValue("duplicate key"))
    assert said == ["begin", "select", COPY, "rollback", "begin", "select", "commit"]


def test_who_may_not_copy_inserts_by_the_function() -> None:
    assert COPY not in spoken(bulk.insert_many(JOBS, None), [], MAY_NOT)


@pytest.mark.parametrize(
    "bad", [{"id": "no id"}, {"reason": "a\0b"}, {"run_at": 1e18}, {"delay": 1e18}, {"priority": 99999}]
)
async def test_a_bad_member_refuses_a_large_insert_as_a_whole_and_the_line_goes_on(
    storage: PostgresStorage, bad: dict[str, Any]
) -> None:
    pod = await a_live_pod(storage)
    with pytest.raises(ValueError, match=r"."):
        await storage.insert([*JOBS, a_job(**bad)])
    assert await take(storage, pod) == []
    await storage.insert(JOBS)
    assert len(await take(storage, pod)) == len(JOBS)


async def test_whatever_a_job_has_arrives_by_copy_as_it_was(storage: PostgresStorage) -> None:
    """`binary` encodes what the server reads: a column that it got wrong would hold something else, or be refused."""
    kinds: list[dict[str, Any]] = [
        {},
        {"args": '{"text":"äöü \\u0007 \\" \\\\ 🧵"}'},
        {"queue": "mail", "task": "other", "priority": -7},
        {"max_attempts": 3, "timeout": 1 / 3, "pinned": True},
        {"tags": ("one", "", "drei ü"), "meta": '{"m":[]}', "reason": "why\nnot"},
        {"format": 2, "priority": 100, "run_at": 4_000_000_000.25},
        {"delay": 86_400.5},
    ]
    jobs = [a_job(**kinds[n % len(kinds)]) for n in range(bulk.LEAST + 70)]
    before = await storage.time()
    await storage.insert(jobs)
    names = (
        *("queue", "task", "args", "priority", "max_attempts", "timeout"),
        *("pinned", "tags", "meta", "reason", "format"),
    )
    found = {job.id: job for job in await storage.get([new.id for new in jobs])}
    for new in jobs:
        job = found[new.id]
        assert [getattr(job, name) for name in names] == [getattr(new, name) for name in names]
        assert before - 0.01 <= job.created_at <= before + 5
        assert job.run_at == pytest.approx(new.run_at or job.created_at + new.delay, abs=1e-5)


@pytest.mark.parametrize("bad", ["0" * 30, "zz" * 16, "", "\ud800"])
def test_an_id_that_is_none_is_refused_before_it_is_sent(bad: str) -> None:
    with pytest.raises(BadValue):
        list(binary.pieces([a_job(id=bad)], datetime.now(UTC)))
