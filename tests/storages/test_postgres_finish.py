"""Finishes, many to a statement: ids and tokens travel as texts, and the usual answer is that all were accepted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from tests import postgres_server
from treadle.core.job import State
from treadle.core.outcome import Succeeded
from treadle.storages.postgres import PostgresStorage, apply, rows
from treadle.testing.conformance.builders import a_job, finished, want
from treadle.testing.conformance.steps import a_live_pod, put

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    yield storage
    await storage.close()


@pytest.mark.parametrize("stale", [(), (1,), (0, 2), (0, 1, 2)])
async def test_of_a_batch_exactly_the_stale_ones_are_refused(storage: PostgresStorage, stale: tuple[int, ...]) -> None:
    pod = await a_live_pod(storage)
    await put(storage, *(a_job() for _ in range(3)))
    jobs = (await storage.claim(pod, "token", (want(limit=3),))).jobs
    changes = [finished(job, Succeeded()) for job in jobs]
    for n in stale:
        changes[n] = msgspec.structs.replace(changes[n], token="another")
    answers = await storage.apply(changes)
    assert [n for n, answer in enumerate(answers) if not answer.accepted] == list(stale)
    states = [(await storage.get([job.id]))[0].state for job in jobs]
    assert states == [State.RUNNING if n in stale else State.SUCCEEDED for n in range(3)]


async def test_a_token_with_a_comma_is_nobody_elses(storage: PostgresStorage) -> None:
    """Joined with others it would shift theirs by one."""
    pod = await a_live_pod(storage)
    await put(storage, a_job(), a_job())
    first, second = "one,two", "two"
    (odd,) = (await storage.claim(pod, first, (want(limit=1),))).jobs
    (even,) = (await storage.claim(pod, second, (want(limit=1),))).jobs
    changes = [finished(odd, Succeeded()), finished(even, Succeeded())]
    assert [apply.is_quick(change) for change in changes] == [False, True]
    assert all(answer.accepted for answer in await storage.apply(changes))


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        ("0190a1b2-0000-7000-8000-000000000001", True),
        ("0190A1B2-0000-7000-8000-00000000000F", True),
        ("0190a1b200007000800000000000000001", False),
        ("0190a1b2-0000-7000-8000-000000000001\n", False),
        ("0190a1b2-0000-7000-8000-00000000000g", False),
        ("0190a1b-20000-7000-8000-000000000001", False),
        ("", False),
    ],
)
def test_what_can_be_an_id(text: str, is_id: bool) -> None:
    assert rows.is_id(text) is is_id
