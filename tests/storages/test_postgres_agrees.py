"""Memory is the oracle: the same verbs, drawn by chance, go to both storages, and every answer is compared.

What differs by right: instants are kept to the microsecond; newest is who has the newest id, which the client made; a
pod that signed off is still known by its label. And what the port leaves open: a lane's tasks are no other lane's (a
task has one executor), and nobody asks for nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests import postgres_server
from tests.storages import test_sqlite_agrees as sqlite_agrees
from tests.storages.test_sqlite_agrees import FILTERS, QUEUES, TASKS
from treadle.core import keep_last, lifecycle
from treadle.core.filter import Filter, parse
from treadle.core.job import Change
from treadle.ports import Applied, Lane, Query, Storage, Want
from treadle.storages.memory.storage import MemoryStorage
from treadle.storages.postgres import PostgresStorage, find
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.builders import a_token

pytestmark = pytest.mark.anyio


def rounded(value: Any) -> Any:
    """Plain values, with instants to the millisecond."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        if isinstance(kept := value.get("kept"), str):  # the same request, written by SQL
            value = {**value, "kept": msgspec.to_builtins(keep_last.request_of(kept))}
        return {rounded(key): rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return value


async def send(storage: Storage, changes: Sequence[Change]) -> Sequence[Applied]:
    """Apply Changes that were made of what another storage has answered."""
    return await storage.apply([await _fitting(storage, change) for change in changes])


async def _fitting(storage: Storage, change: Change) -> Change:
    """The same Change in the words of this storage: it keeps the same request, and may write it in another way."""
    if change.takes is None:
        return change
    for holder in await storage.get([change.id]):
        if rounded({"kept": holder.kept}) == rounded({"kept": change.takes}):
            return msgspec.structs.replace(change, takes=holder.kept)
    return change


class Program(sqlite_agrees.Program):
    async def both(self, verb: Callable[[Storage], Awaitable[Any]], shape: Callable[[Any], Any] = lambda x: x) -> Any:
        first, second = [await verb(storage) for storage in self.storages]
        assert rounded(msgspec.to_builtins(shape(second))) == rounded(msgspec.to_builtins(shape(first)))
        return first

    async def send(self, storage: Storage, changes: Sequence[Change]) -> Sequence[Applied]:
        return await send(storage, changes)

    async def claim(self) -> None:
        draw = self.random
        if not self.pods or draw.random() < 0.1:
            await self.register()
        tasks = draw.sample(TASKS, draw.randrange(2, 5))
        cut = draw.randrange(1, len(tasks))
        lanes = [Lane(frozenset(part), draw.randrange(1, 4)) for part in (tasks[:cut], tasks[cut:])]
        wants = [
            Want(queue, draw.randrange(1, 6), tuple(lanes[: draw.randrange(1, 3)]))
            for queue in draw.sample(QUEUES, draw.randrange(1, 4))
        ]
        pod, token = draw.choice(self.pods), a_token()
        self.tokens.append((pod, token))
        claimed = await self.both(lambda storage: storage.claim(pod, token, wants))
        self.seen += claimed.jobs

    async def find(self) -> None:
        which = parse(self.random.choice(FILTERS))
        next_first = self.random.random() < 0.3
        limit = self.random.choice((1, 3, 50))
        one, other = [await self.pages(storage, which, limit, next_first) for storage in self.storages]
        if not next_first:
            one.sort(key=lambda job: str(job["id"]), reverse=True)
        assert other == one, str(which)

    async def pages(self, storage: Storage, which: Filter, limit: int, next_first: bool) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await storage.find(Query(filter=which, limit=limit, cursor=cursor, next_first=next_first))
            found += rounded(msgspec.to_builtins(list(page.jobs)))
            cursor = page.next
            if cursor is None:
                return found

    async def abandoned(self) -> None:
        found = await self.both(
            lambda storage: storage.abandoned(3, 5.0), lambda found: [(each.job, each.why) for each in found]
        )
        changes = [lifecycle.rescue(each.job, "pod") for each in found if each.why != "deadline"]
        if self.random.random() < 0.5:
            await self.both(lambda storage: storage.apply(changes))


@pytest.mark.parametrize("seed", range(10))
async def test_postgres_answers_every_verb_as_memory_does(
    seed: int, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:  # as if there were too many jobs to list: they are walked over, stretch by stretch
        monkeypatch.setattr(find, "FEW", 3)
        monkeypatch.setattr(find, "STRETCH", 7)
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), clock=clock)
    await storage.open()
    program = Program(seed, MemoryStorage(clock), storage, clock)
    for _ in range(300):
        await program.step()
    await program.end()
    await storage.close()
