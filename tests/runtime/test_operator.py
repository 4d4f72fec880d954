"""The Operator works off operations, the Pruner removes what is over its age: one pass each, apart from their loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.core import filter as filters
from treadle.core import lifecycle, operation
from treadle.core.errors import StorageUnavailable
from treadle.core.job import NewJob, QueueChange, State
from treadle.core.operation import Operation, new
from treadle.core.queue import DAY, FOR_EVER
from treadle.ports import Page, Pruned, Query
from treadle.runtime.services import operator, pruner
from treadle.runtime.services.operator import Operator
from treadle.runtime.services.pruner import Pruner
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.builders import an_id

pytestmark = pytest.mark.anyio


async def with_jobs(count: int, storage: MemoryStorage | None = None) -> MemoryStorage:
    storage = storage or MemoryStorage(FakeClock())
    await storage.insert([NewJob(id=an_id(), task="t", queue="mail") for _ in range(count)])
    return storage


async def begin(storage: MemoryStorage, **fields: Any) -> Operation:
    saved = await storage.save_operation(new(an_id(), "cancel", "queue:mail", **fields), None)
    assert saved is not None
    return saved


async def seen(storage: MemoryStorage, id: str) -> Operation:
    found = await storage.operation(id)
    assert found is not None
    return found


def counts(found: Operation) -> tuple[str, int, int]:
    return found.state, found.matched, found.changed


async def test_a_pass_works_off_what_was_asked_for() -> None:
    storage = await with_jobs(7)
    first, second = await begin(storage), await begin(storage)
    service = Operator(storage, chunk=3)
    await service.run_once()
    assert counts(await seen(storage, second.id)) == ("finished", 7, 7)
    assert counts(await seen(storage, first.id)) == ("finished", 7, 0)  # all of it was too late
    assert service.changed == 7
    assert service.chunks == 6
    await service.run_once()
    assert service.chunks == 6


async def test_each_job_remembers_who_did_it() -> None:
    storage = await with_jobs(2)
    found = await begin(storage, by="ann")
    await Operator(storage).run_once()
    for job in (await storage.find(Query(filter=filters.parse("")))).jobs:
        (line,) = await storage.timeline(job.id)
        assert (line.what, line.by, line.detail) == ("cancelled", "ann", f"operation {found.id}")


async def test_five_operators_at_once_do_nothing_twice() -> None:
    storage = await with_jobs(20)
    found = await begin(storage)
    services = [Operator(storage, chunk=3) for _ in range(5)]
    await asyncio.gather(*(service.run_once() for service in services))
    assert counts(await seen(storage, found.id)) == ("finished", 20, 20)
    assert sum(service.changed for service in services) == 20


class Failing(MemoryStorage):
    """Loses the connection at every other chunk: before it is written, or after, with the answer."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.calls = 0

    async def advance(self, operation: Operation, changes: Any, then: Any) -> Operation | None:
        self.calls += 1
        if self.calls % 3 == 1:
            raise StorageUnavailable("before")
        done = await super().advance(operation, changes, then)
        if self.calls % 3 == 2:
            raise StorageUnavailable("after")
        return done


async def test_a_pass_that_broke_off_is_taken_up_again_and_the_counts_are_exact() -> None:
    storage = Failing()
    await with_jobs(20, storage)
    found = await begin(storage)
    broken = 0
    while (await seen(storage, found.id)).state == "running":
        try:
            await Operator(storage, chunk=2).run_once()  # a new leader each time
        except StorageUnavailable:
            broken += 1
    assert broken > 3
    assert counts(await seen(storage, found.id)) == ("finished", 20, 20)


class Stubborn(MemoryStorage):
    """Will not do what one operation asks for."""

    refused = ""

    async def advance(self, operation: Operation, changes: Any, then: Any) -> Operation | None:
        if operation.id == self.refused:
            raise RuntimeError("never")
        return await super().advance(operation, changes, then)

    async def prune(self, state: State, **how: Any) -> Pruned:
        if state is State.SUCCEEDED:
            raise RuntimeError("never")
        return await super().prune(state, **how)


async def test_an_operation_that_cannot_be_worked_on_keeps_no_other_waiting() -> None:
    storage = Stubborn(FakeClock())
    await with_jobs(3, storage)
    first, second = await begin(storage), await begin(storage)
    storage.refused = second.id  # the newest comes first
    with pytest.raises(RuntimeError, match="never"):  # and its error is shown
        await Operator(storage).run_once()
    assert counts(await seen(storage, first.id)) == ("finished", 3, 3)


async def test_a_state_that_cannot_be_pruned_keeps_no_other_from_being_pruned() -> None:
    clock = FakeClock()
    storage = Stubborn(clock)
    await with_jobs(3, storage)
    await begin(storage)
    await Operator(storage).run_once()
    clock.advance(91 * DAY)
    service = Pruner(storage)
    with pytest.raises(RuntimeError, match="never"):
        await service.run_once()
    assert (service.removed["cancelled"], service.removed["operations"]) == (3, 1)


async def test_a_stop_takes_effect_before_the_next_chunk() -> None:
    storage = await with_jobs(6)
    found = await begin(storage)
    once = await operator.work(storage, found, 2)
    assert once is not None
    wish = operation.stop(once)
    assert wish is not None
    await storage.save_operation(wish, once.version)
    assert await operator.work(storage, once, 2) is None  # it read the row before the stop
    await Operator(storage, chunk=2).run_once()
    stopped = await seen(storage, found.id)
    assert counts(stopped) == ("stopped", 2, 2)
    assert stopped.finished_at is not None
    again = operation.resume(stopped, attended=False)
    assert again is not None
    await storage.save_operation(again, stopped.version)
    await Operator(storage, chunk=2).run_once()
    assert counts(await seen(storage, found.id)) == ("finished", 6, 6)


async def test_what_somebody_attends_to_is_taken_up_only_when_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = await with_jobs(6)
    found = await begin(storage, attended=True)
    service = Operator(storage, chunk=2)
    await service.run_once()
    assert counts(await seen(storage, found.id)) == ("running", 0, 0)
    monkeypatch.setattr(operator, "ABANDONED_AFTER", 0.0)
    await operator.work(storage, found, 2)  # they still do: the version is not the one that was seen
    await service.run_once()
    await service.run_once()
    assert counts(await seen(storage, found.id)) == ("finished", 6, 6)


async def test_a_filter_that_cannot_be_read_fails_the_operation_and_not_the_pass() -> None:
    storage = await with_jobs(3)
    saved = await begin(storage)
    await storage.advance(saved, [], lambda _: replace(saved, filter="colour:red"))
    other = await begin(storage)
    await Operator(storage).run_once()
    failed = await seen(storage, saved.id)
    assert failed.state == "failed"
    assert 'unknown key "colour"' in (failed.error or "")
    assert (await seen(storage, other.id)).state == "finished"


class CutShort(MemoryStorage):
    """Looks at one row in a call, as if it had no time for more."""

    async def find(self, query: Query) -> Page:
        page = await super().find(Query(filter=filters.parse(""), limit=1, cursor=query.cursor))
        now = self._clock.now()
        jobs = [job for job in page.jobs if self._matches(query.filter, self._rows[job.id], now)]
        return Page(jobs=jobs, newest_only=1, resume=page.next)


async def test_a_look_that_was_cut_short_goes_on_until_all_were_seen() -> None:
    storage = CutShort(FakeClock())
    await with_jobs(5, storage)
    await storage.insert([NewJob(id=an_id(), task="t", queue="other")])
    await with_jobs(3, storage)
    found = await begin(storage)
    await Operator(storage, chunk=500).run_once()
    assert counts(await seen(storage, found.id)) == ("finished", 8, 8)


# Pruner --------------------------------------------------------------------------------------------------------------


async def with_ended(storage: MemoryStorage, clock: FakeClock, count: int, queue: str = "mail") -> None:
    jobs = [NewJob(id=an_id(), task="t", queue=queue) for _ in range(count)]
    await storage.insert(jobs)
    changes = [lifecycle.cancel(job) for job in await storage.get([job.id for job in jobs])]
    await storage.apply([change for change in changes if change is not None])
    clock.advance(1)


async def test_a_pass_removes_what_is_over_its_age_and_counts_it() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await with_ended(storage, clock, 7)
    service = Pruner(storage, chunk=2)
    await service.run_once()
    assert not any(service.removed.values())
    clock.advance(7 * DAY)
    await with_ended(storage, clock, 1)
    await service.run_once()
    assert service.removed["cancelled"] == 7
    assert not service.behind
    assert await storage.count(filters.parse("")) == {State.CANCELLED: 1}


async def test_a_pass_ends_with_its_time_and_the_next_goes_on_from_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await storage.apply([QueueChange(name="all", keep_cancelled=FOR_EVER)])
    await with_ended(storage, clock, 5)
    clock.advance(8 * DAY)
    monkeypatch.setattr(pruner, "LONGEST_PASS", 0.0)
    monkeypatch.setattr(pruner, "DUTY", 0.0)
    service = Pruner(storage, chunk=2)
    removed = []
    for _ in range(3):
        await service.run_once()
        removed.append(service.removed["cancelled"])
    assert removed == [2, 4, 5]
    assert not service.behind


async def test_two_pruners_at_once_count_each_job_once() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await with_ended(storage, clock, 9)
    clock.advance(8 * DAY)
    services = [Pruner(storage, chunk=2) for _ in range(3)]
    await asyncio.gather(*(service.run_once() for service in services))
    assert sum(service.removed["cancelled"] for service in services) == 9


class Odd(MemoryStorage):
    async def sweep_locks(self) -> int:
        raise StorageUnavailable("no locks today")


async def test_a_step_that_fails_keeps_none_of_the_others_from_being_done(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    storage = Odd(clock)
    found = await begin(storage)
    await Operator(storage).run_once()
    clock.advance(91 * DAY)
    service = Pruner(storage)
    await service.run_once()
    await service.run_once()
    assert service.removed["operations"] == 1
    assert service.removed["audit"] == 2
    assert await storage.operation(found.id) is None
    assert [record.getMessage() for record in caplog.records].count("locks: StorageUnavailable: no locks today") == 1


async def test_the_pruned_value_says_when_all_was_seen() -> None:
    assert await MemoryStorage(FakeClock()).prune(State.FAILED) == Pruned(0)
