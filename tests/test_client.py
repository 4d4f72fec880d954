from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from treadle import (
    App,
    BulkIncomplete,
    Conflict,
    Context,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobView,
    PayloadError,
    Registry,
    ResultTimeout,
    StorageTimeout,
    StorageUnavailable,
    Unique,
)
from treadle.client.client import Client, Ids
from treadle.context.context import Call, Handle, Options
from treadle.core import lifecycle
from treadle.core.backoff import Retry
from treadle.core.errors import ConfigError
from treadle.core.job import Change, ErrorEntry, Job, NewJob, QueueChange
from treadle.core.outcome import Outcome, Raised, Stopped, Succeeded
from treadle.core.pod import PodCard
from treadle.hooks import Hooks
from treadle.ports import Applied, Inserted, Lane, Storage, Want
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock
from treadle.testing.simulation.loop import SimLoop

pytestmark = pytest.mark.anyio

T = TypeVar("T")
UNKNOWN = "00000000-0000-7000-8000-000000000000"


class Kept:
    """A Keeper whose storage is open."""

    def __init__(self, storage: Storage) -> None:
        self.current: Storage | None = storage

    async def open(self) -> Storage:
        assert self.current is not None
        return self.current

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        raise AssertionError("not here")


class Unsteady(MemoryStorage):
    """Fails so many times; with `after`, only once the work is done: the answer is lost."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.failures = 0
        self.after = False
        self.calls = 0

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        self._before()
        return self._answer(await super().insert(jobs))

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        self._before()
        return self._answer(await super().apply(changes))

    def _before(self) -> None:
        self.calls += 1
        if self.failures and not self.after:
            self.failures -= 1
            raise StorageUnavailable("away")

    def _answer(self, answer: T) -> T:
        if self.failures:
            self.failures -= 1
            raise StorageTimeout("lost")
        return answer


class Sleeps(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def storage(clock: FakeClock) -> Unsteady:
    return Unsteady(clock)


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
def client(storage: Unsteady, sleeps: Sleeps) -> Client:
    return Client(Kept(storage), sleep=sleeps)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def a_call(task: str = "t", args: str = "{}", **options: Any) -> Call[Any]:
    return Call(task, args, Options(**options))


async def claim(storage: MemoryStorage, queue: str = "default", task: str = "t") -> Job:
    card = PodCard(id="p", label="p", host="h", pid=1, version="", queues={queue: 1}, tasks=(task,), lease=30.0)
    await storage.register(card)
    (job,) = (await storage.claim("p", "token", [Want(queue, 1, (Lane(frozenset({task}), 1),))])).jobs
    return job


async def finish(storage: MemoryStorage, outcome: Outcome) -> Job:
    job = await claim(storage)
    (applied,) = await storage.apply([lifecycle.finish(job, outcome, Retry(max_attempts=1), 0.5)])
    assert applied.accepted
    return job


def a_failure(message: str = "boom", kind: Any = "error") -> ErrorEntry:
    return ErrorEntry(attempt=1, kind=kind, type="ValueError", message=message)


# Ids -----------------------------------------------------------------------------------------------------------------


def test_ids_rise_in_every_thread() -> None:
    made, new_id = list[list[str]](), Ids()

    def make() -> None:
        made.append([new_id() for _ in range(500)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == sorted(each) for each in made)
    assert len({each for own in made for each in own}) == 2000


# Enqueue -------------------------------------------------------------------------------------------------------------


async def test_an_enqueue_writes_what_was_asked_for(client: Client, storage: Unsteady, clock: FakeClock) -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    call = a_call(
        args='{"a":1}', queue="mail", priority=7, run_at=at, max_attempts=3, timeout=9.0, pinned=True,
        tags=("x",), meta='{"m":1}', reason="why", id=UNKNOWN,
    )  # fmt: skip
    handle = await client.enqueue(call)
    assert (handle.id, handle.outcome) == (UNKNOWN, "inserted")
    (job,) = await storage.get([UNKNOWN])
    assert (job.task, job.queue, job.args, job.priority, job.run_at) == ("t", "mail", '{"a":1}', 7, at)
    assert (job.max_attempts, job.timeout, job.pinned) == (3, 9.0, True)
    assert (job.tags, job.meta, job.reason) == (("x",), '{"m":1}', "why")


async def test_a_delay_counts_from_the_storages_clock(client: Client, clock: FakeClock) -> None:
    view = await (await client.enqueue(a_call(delay=60.0))).status()
    assert (view.state, view.run_at.timestamp()) == ("scheduled", clock.now() + 60)


async def test_a_call_enqueued_twice_gives_two_jobs_and_with_an_id_one(client: Client, storage: Unsteady) -> None:
    call = a_call()
    assert (await client.enqueue(call)).id != (await client.enqueue(call)).id
    named = a_call(id=UNKNOWN)
    assert (await client.enqueue(named)).id == (await client.enqueue(named)).id
    assert sum((await storage.count(_everything())).values()) == 3


def _everything() -> Any:
    from treadle.core import filter as filters

    return filters.parse("")


async def test_a_held_key_answers_with_its_holder(client: Client) -> None:
    first = await client.enqueue(a_call(unique=Unique(key="k")))
    second = await client.enqueue(a_call(unique=Unique(key="k")))
    third = await client.enqueue(a_call(args='{"n":3}', unique=Unique(key="k", on_conflict="replace")))
    assert (second.id, second.outcome) == (first.id, "duplicate")
    assert (third.id, third.outcome) == (first.id, "replaced")
    assert (await third.status()).args == {"n": 3}


async def test_a_derived_key_is_made_of_task_and_arguments(client: Client) -> None:
    one = await client.enqueue(a_call(args='{"n":1}', unique=Unique()))
    two = await client.enqueue(a_call(args='{"n":2}', unique=Unique()))
    again = await client.enqueue(a_call(args='{"n":1}', unique=Unique()))
    assert (one.outcome, two.outcome, again.outcome, again.id) == ("inserted", "inserted", "duplicate", one.id)


async def test_a_derived_key_by_queue_sees_the_routed_queue(storage: Unsteady) -> None:
    queues = iter(["a", "b"])
    client = Client(Kept(storage), router=lambda task: next(queues))
    outcomes = [(await client.enqueue(a_call(unique=Unique(by_queue=True)))).outcome for _ in range(2)]
    assert outcomes == ["inserted", "inserted"]


async def test_many_are_one_insert_with_one_outcome_each_in_order(client: Client, storage: Unsteady) -> None:
    keys = ["a", "b", "a"]
    handles = await client.enqueue_many(a_call(unique=Unique(key=key)) for key in keys)
    assert storage.calls == 1
    assert [handle.outcome for handle in handles] == ["inserted", "inserted", "duplicate"]
    assert handles[2].id == handles[0].id
    assert await client.enqueue_many([]) == []
    assert storage.calls == 1


async def test_a_refused_payload_among_many_writes_nothing(
    client: Client, storage: Unsteady, registry: Registry
) -> None:
    @registry.task
    def send(a: Any) -> None: ...

    with pytest.raises(PayloadError):
        await client.enqueue_many(send.bind(each) for each in (1, object()))
    assert storage.calls == 0


async def test_many_takes_bound_calls_only(client: Client, registry: Registry) -> None:
    task = registry.task(name="t")(lambda: None)
    with pytest.raises(TypeError, match=r"task\.bind"):
        await client.enqueue_many([task])  # type: ignore[list-item]


async def test_many_is_one_transaction_so_one_connection(client: Client) -> None:
    with pytest.raises(ValueError, match="same within"):
        await client.enqueue_many([a_call(within=object()), a_call(within=object())])


# Routing -------------------------------------------------------------------------------------------------------------


def queue_of(router: Any, task: str = "gh_sync", queue: str | None = None) -> str:
    return Client(Kept(MemoryStorage()), router=router).prepare(a_call(task, queue=queue)).queue


def test_the_queue_is_the_calls_or_the_tasks_then_the_routers_then_default() -> None:
    assert queue_of({"gh_": "gh"}, queue="own") == "own"
    assert queue_of({"gh_": "gh"}) == "gh"
    assert queue_of({"x": "gh"}) == "default"
    assert queue_of(None) == "default"
    assert queue_of(lambda task: task[:2]) == "gh"
    assert queue_of(lambda task: None) == "default"


def test_the_longest_prefix_wins() -> None:
    assert queue_of({"gh": "short", "gh_s": "long", "": "rest"}) == "long"


def test_a_router_that_cannot_route_is_refused() -> None:
    for wrong in ({"a": "no, no"}, 5):
        with pytest.raises(ConfigError, match="router"):
            queue_of(wrong)
    with pytest.raises(ValueError, match="queue name"):
        queue_of(lambda task: "no, no")


# Bulks that are too large for one transaction ------------------------------------------------------------------------


class Pieces(MemoryStorage):
    """Notes how many jobs came with each insert; the one of that number fails."""

    def __init__(self, clock: FakeClock, fails_at: int | None = None) -> None:
        super().__init__(clock)
        self.sizes: list[int] = []
        self.fails_at = fails_at

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return self.insert_sync(jobs)

    def insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        if len(self.sizes) == self.fails_at:
            raise StorageUnavailable("away")
        self.sizes.append(len(jobs))
        return super().insert_sync(jobs)


def large(number: int, **options: Any) -> Call[Any]:
    """Nine of them are more than 16 MiB, eight less."""
    return a_call(args='"' + f"{number:04}" * 499_999 + '"', **options)


async def enqueue_as(how: str, client: Client, calls: Any, **options: Any) -> list[Handle[Any]]:
    if how == "sync":
        return await asyncio.to_thread(client.enqueue_many_sync, calls, **options)
    return await client.enqueue_many(calls, **options)


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_a_large_bulk_is_read_and_written_piece_by_piece(clock: FakeClock, how: str) -> None:
    """A bulk was read to its end and written in one transaction: 5,000 calls of 0.9 MB took 5 GB of memory, and kept
    all other writers waiting for a minute."""
    storage = Pieces(clock)
    ahead: list[int] = []

    def calls() -> Iterator[Call[Any]]:
        for number in range(30):
            ahead.append(number - sum(storage.sizes))
            yield large(number)

    handles = await enqueue_as(how, Client(Kept(storage)), calls())
    assert storage.sizes == [8, 8, 8, 6]
    assert max(ahead) <= 9  # a piece, and the call that did not fit into it
    assert [each.outcome for each in handles] == ["inserted"] * 30
    assert [job.args[1:5] for job in await storage.get([each.id for each in handles])] == [f"{n:04}" for n in range(30)]


@pytest.mark.parametrize("how", ["async", "sync"])
@pytest.mark.parametrize(("count", "atomic"), [(8, False), (30, True)])
async def test_a_bulk_of_16_mib_or_an_atomic_one_is_one_transaction(
    clock: FakeClock, how: str, count: int, atomic: bool
) -> None:
    storage = Pieces(clock)
    await enqueue_as(how, Client(Kept(storage)), (large(number) for number in range(count)), atomic=atomic)
    assert storage.sizes == [count]


async def test_a_bulk_of_many_small_jobs_is_cut_too_if_it_is_cut_at_all(clock: FakeClock) -> None:
    """Their rows take longer to write than their arguments say."""
    storage = Pieces(clock)
    small, most = a_call(args='"' + "x" * 398 + '"'), (16 << 20) // 400
    await Client(Kept(storage)).enqueue_many(small for _ in range(most))
    assert storage.sizes == [most]
    storage.sizes.clear()
    await Client(Kept(storage)).enqueue_many(small for _ in range(most + 1))
    assert max(storage.sizes) == (16 << 20) // (400 + 512)
    assert sum(storage.sizes) == most + 1


@pytest.mark.parametrize("how", ["async", "sync"])
async def test_a_bulk_that_fails_midway_tells_which_jobs_are_in(clock: FakeClock, how: str, sleeps: Sleeps) -> None:
    storage = Pieces(clock, fails_at=2)
    client = Client(Looped(storage), sleep=sleeps)
    with pytest.raises(BulkIncomplete, match="16 jobs are in; whether the next ones are is unknown") as found:
        await enqueue_as(how, client, (large(number) for number in range(30)))
    assert isinstance(found.value.__cause__, StorageUnavailable)
    assert len(await storage.get([each.id for each in found.value.handles])) == 16
    assert sum((await storage.count(_everything())).values()) == 16


@pytest.mark.parametrize("good", [3, 20])
async def test_a_refused_payload_undoes_nothing_that_was_written_before(clock: FakeClock, good: int) -> None:
    """The iterator makes its calls while the bulk is written: one that it refuses may come late."""

    def calls() -> Iterator[Call[Any]]:
        yield from (large(number) for number in range(good))
        raise PayloadError("a set cannot be stored", "tags")

    storage = Pieces(clock)
    with pytest.raises(PayloadError if good == 3 else BulkIncomplete, match="tags: a set cannot be stored") as found:
        await Client(Kept(storage)).enqueue_many(calls())
    assert storage.sizes == ([] if good == 3 else [8, 8])
    assert len(getattr(found.value, "handles", ())) == sum(storage.sizes)


async def test_equal_keys_of_different_pieces_conflict_in_the_callers_order(clock: FakeClock) -> None:
    storage = Pieces(clock)
    calls = (large(number, unique=Unique(key="one") if number in (2, 25) else None) for number in range(30))
    handles = await Client(Kept(storage)).enqueue_many(calls)
    assert [number for number, each in enumerate(handles) if each.outcome == "duplicate"] == [25]
    assert handles[25].id == handles[2].id


async def test_a_transaction_that_is_named_too_late_is_refused(clock: FakeClock) -> None:
    storage = Pieces(clock)
    with pytest.raises(BulkIncomplete, match="too late"):
        await Client(Kept(storage)).enqueue_many(
            large(number, within=object() if number == 20 else None) for number in range(30)
        )


# Trouble -------------------------------------------------------------------------------------------------------------


async def test_an_insert_is_tried_four_times(client: Client, storage: Unsteady, sleeps: Sleeps) -> None:
    storage.failures = 3
    assert (await client.enqueue(a_call())).outcome == "inserted"
    assert sleeps == [0.1, 0.3, 1.0]
    storage.failures = 4
    with pytest.raises(StorageUnavailable):
        await client.enqueue(a_call())
    assert len(sleeps) == 6


class Stuck(MemoryStorage):
    """Keeps each call for so many seconds of the loop's time, and then gives up, as a storage behind a lock does."""

    def __init__(self, *seconds: float) -> None:
        super().__init__(FakeClock())
        self.seconds = list(seconds)

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        await asyncio.sleep(self.seconds.pop(0))
        raise StorageTimeout("locked")


@pytest.mark.parametrize(
    ("tries", "end"),
    [
        ((10.0, 10.0, 10.0, 10.0), 10.0),  # was 41.4: each try had a deadline of its own
        ((4.0, 10.0, 10.0), 10.0),  # the second try is cut short
        ((9.95, 10.0), 9.95),  # no time is left for a pause and a try
        ((0.0, 0.0, 0.0, 0.0), 1.4),
    ],
)
def test_all_tries_of_an_enqueue_share_one_deadline(tries: tuple[float, ...], end: float) -> None:
    """An insert against a locked SQLite file waited for the call deadline of 10 s, and the client repeated it three
    times: the caller heard of the lock after 41 s."""
    loop = SimLoop("one deadline")
    try:
        with pytest.raises(StorageTimeout, match="locked"):
            loop.run_until_complete(Client(Kept(Stuck(*tries))).enqueue(a_call()))
        assert loop.time() == pytest.approx(end)
    finally:
        loop.close()


def test_a_thread_that_waits_has_the_same_deadline_over_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first try waits in the caller's thread, the others on a loop: what the first took counts for those."""
    passed = 0.0

    class StuckThread(Stuck):
        def insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
            nonlocal passed
            passed += 7.0
            raise StorageTimeout("locked")

    monkeypatch.setattr("treadle.client.client.time.monotonic", lambda: passed)
    loop = SimLoop("one deadline")
    keeper = Looped(StuckThread(10.0, 10.0, 10.0), loop.run_until_complete)
    try:
        with pytest.raises(StorageTimeout, match="locked"):
            Client(keeper).enqueue_sync(a_call())
        assert loop.time() == pytest.approx(3.0)
    finally:
        loop.close()


async def test_a_lost_answer_does_not_double_a_job(client: Client, storage: Unsteady) -> None:
    storage.failures, storage.after = 2, True
    handle = await client.enqueue(a_call())
    assert handle.outcome == "inserted"
    assert storage.calls == 3
    assert sum((await storage.count(_everything())).values()) == 1


async def test_a_cancel_whose_answer_was_lost_still_says_cancelled(client: Client, storage: Unsteady) -> None:
    handle = await client.enqueue(a_call())
    storage.failures, storage.after = 1, True
    assert await handle.cancel() == "cancelled"


# Afterwards ----------------------------------------------------------------------------------------------------------


async def test_a_result_is_waited_for(client: Client, storage: Unsteady) -> None:
    handle = await client.enqueue(a_call())
    waits = asyncio.create_task(handle.result(timeout="10s"))
    await finish(storage, Succeeded('{"n":1}'))
    assert await waits == {"n": 1}
    assert await handle.result() == {"n": 1}
    assert not storage._listeners


async def test_a_wake_ends_the_wait_before_the_next_poll(
    client: Client, storage: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.client.client.FIRST_POLL", 3600.0)
    handle = await client.enqueue(a_call())
    waits = asyncio.create_task(handle.result())
    while not storage._listeners:
        await asyncio.sleep(0)
    await finish(storage, Succeeded("1"))
    async with asyncio.timeout(5):
        assert await waits == 1


async def test_polling_finds_what_no_wake_told(
    client: Client, storage: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.client.client.FIRST_POLL", 0.001)
    monkeypatch.setattr(storage, "_tell", lambda wake: None)
    handle = await client.enqueue(a_call())
    waits = asyncio.create_task(handle.result())
    while not storage._listeners:
        await asyncio.sleep(0)
    await finish(storage, Succeeded("1"))
    async with asyncio.timeout(5):
        assert await waits == 1


async def test_a_result_that_does_not_come_in_time_is_a_timeout_and_the_job_goes_on(
    client: Client, storage: Unsteady
) -> None:
    handle = await client.enqueue(a_call())
    for timeout in (0, "20ms"):
        with pytest.raises(ResultTimeout, match="it goes on"):
            await handle.result(timeout=timeout)
    assert not storage._listeners
    assert (await handle.status()).state == "ready"


async def test_a_timeout_says_what_stands_in_the_way(client: Client, storage: Unsteady) -> None:
    """It said that the job goes on, where nothing would ever have run it."""
    handle = await client.enqueue(a_call())
    with pytest.raises(
        ResultTimeout, match=r"it goes on\. ready: no worker is running \(treadle worker --queues default"
    ):
        await handle.result(timeout=0)
    await storage.apply([QueueChange(name="default", paused=True, pause_reason="holiday")])
    with pytest.raises(ResultTimeout, match=r"queue default is paused.*holiday.*no worker is running"):
        await handle.result(timeout=0)


async def test_a_timeout_says_the_last_error_and_the_next_attempt(client: Client, storage: Unsteady) -> None:
    handle = await client.enqueue(a_call(max_attempts=3))
    await finish(storage, Raised(a_failure("no such user")))
    with pytest.raises(ResultTimeout, match=r"scheduled: due in .* attempt 2 of 3.*ValueError: no such user"):
        await handle.result(timeout=0)


async def test_what_cannot_be_explained_hides_no_timeout(
    client: Client, storage: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await client.enqueue(a_call())

    async def hangs() -> Any:
        await asyncio.Event().wait()

    async def breaks() -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr("treadle.client.client.EXPLAINED_WITHIN", 0.01)
    for pods in (hangs, breaks):
        monkeypatch.setattr(storage, "pods", pods)
        with pytest.raises(ResultTimeout, match=r"it goes on$"):
            await handle.result(timeout=0)


async def test_a_failed_job_raises_with_its_kind_and_error(client: Client, storage: Unsteady) -> None:
    handle = await client.enqueue(a_call(max_attempts=1))
    await finish(storage, Raised(a_failure("no such user")))
    with pytest.raises(JobFailed, match="no such user") as caught:
        await handle.result()
    assert (caught.value.kind, caught.value.error) == ("error", "ValueError: no such user")


async def test_a_cancelled_job_raises_so(client: Client, storage: Unsteady) -> None:
    handle = await client.enqueue(a_call())
    await finish(storage, Stopped(a_failure(kind="cancelled")))
    with pytest.raises(JobCancelled, match=handle.id):
        await handle.result()


async def test_a_job_that_is_not_there_is_not_found(client: Client) -> None:
    handle = await client.enqueue(a_call())
    handle.id = UNKNOWN
    with pytest.raises(JobNotFound, match=UNKNOWN):
        await handle.status()
    with pytest.raises(JobNotFound):
        await handle.result()
    assert await handle.cancel() == "not found"


async def test_a_result_is_of_the_tasks_type(client: Client, storage: Unsteady, registry: Registry) -> None:
    @registry.task(name="t")
    def make() -> Answer: ...  # type: ignore[empty-body]

    handle = await client.enqueue(make.bind())
    await finish(storage, Succeeded('{"n":1}'))
    assert await handle.result() == Answer(1)


@dataclasses.dataclass
class Answer:
    n: int


async def test_cancel_answers_with_what_it_achieved(client: Client, storage: Unsteady) -> None:
    handle = await client.enqueue(a_call())
    assert await handle.cancel() == "cancelled"
    assert (await handle.status()).state == "cancelled"
    assert await handle.cancel() == "too late"
    running = await client.enqueue(a_call())
    await claim(storage)
    assert await running.cancel() == "asked"
    assert (await running.status()).cancel_wanted


async def test_a_cancel_that_loses_the_race_looks_again(
    client: Client, storage: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await client.enqueue(a_call())
    waiting = (await storage.get([handle.id]))[0]
    await claim(storage)
    seen = iter([waiting])
    get = storage.get

    async def outdated(ids: Sequence[str]) -> Sequence[Job]:
        return [old] if (old := next(seen, None)) else await get(ids)

    monkeypatch.setattr(storage, "get", outdated)
    assert await handle.cancel() == "asked"


async def test_a_job_that_always_runs_away_is_a_conflict(
    client: Client, storage: Unsteady, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await client.enqueue(a_call())
    waiting = (await storage.get([handle.id]))[0]
    await claim(storage)

    async def outdated(ids: Sequence[str]) -> Sequence[Job]:
        return [waiting]

    monkeypatch.setattr(storage, "get", outdated)
    with pytest.raises(Conflict, match="faster"):
        await handle.cancel()


# Hooks ---------------------------------------------------------------------------------------------------------------


async def test_the_enqueued_hook_hears_of_new_jobs_only(storage: Unsteady) -> None:
    hooks, told = Hooks(), list[JobView]()
    hooks.add("enqueued", told.append)
    client = Client(Kept(storage), hooks=hooks)
    handle = await client.enqueue(a_call(unique=Unique(key="k"), delay=5.0, args='{"n":1}'))
    await client.enqueue(a_call(unique=Unique(key="k")))
    assert [(view.id, view.state, view.args) for view in told] == [(handle.id, "scheduled", {"n": 1})]


async def test_a_hook_that_fails_is_counted_and_never_heard(
    storage: Unsteady, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = Hooks()

    def broken(view: JobView) -> None:
        raise ValueError("hook")

    async def broken_later(view: JobView) -> None:
        raise ValueError("async hook")

    hooks.add("enqueued", broken)
    hooks.add("enqueued", broken_later)
    handle = await Client(Kept(storage), hooks=hooks).enqueue(a_call())
    await hooks.drain()
    assert handle.outcome == "inserted"
    assert hooks.errors == {"enqueued": 2}
    assert [record.message for record in caplog.records] == [f"hook enqueued failed for job {handle.id}"] * 2


async def test_hooks_see_the_job_as_its_change_leaves_it(client: Client, storage: Unsteady) -> None:
    hooks, told = Hooks(), list[JobView]()
    hooks.add("succeeded", told.append)
    hooks.add("failed", told.append)
    await client.enqueue(a_call())
    job = await claim(storage)
    hooks.tell("succeeded", job, lifecycle.finish(job, Succeeded("1"), Retry(), 0.5))
    hooks.tell("failed", job, lifecycle.finish(job, Raised(a_failure(), final=True), Retry(), 0.5))
    hooks.tell("cancel_asked", job)
    assert [(view.state, view.result) for view in told] == [("succeeded", 1), ("failed", None)]
    assert told[1].error is not None
    assert told[1].error.message == "boom"


async def test_an_async_hook_without_a_loop_is_an_error_of_the_hook() -> None:
    hooks = Hooks()

    async def later(view: JobView) -> None: ...

    hooks.add("started", later)
    job = Job(id="1", task="t", queue="q", state=lifecycle.State.RUNNING)
    thread = threading.Thread(target=hooks.tell, args=("started", job))
    thread.start()
    thread.join()
    assert hooks.errors == {"started": 1}


def test_an_unknown_hook_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'succeeded'"):
        Hooks().add("suceeded", print)
    with pytest.raises(ConfigError, match="must be a function"):
        Hooks().add("failed", 5)  # type: ignore[arg-type]


# The context ---------------------------------------------------------------------------------------------------------


def a_context(job: Job, client: Client | None = None, **more: Any) -> Context[Any]:
    return Context(job=job, state=None, door=client, **more)


async def test_a_context_shows_the_run(client: Client, storage: Unsteady, clock: FakeClock) -> None:
    await client.enqueue(a_call(timeout=60.0, tags=("x",), meta='{"m":1}', reason="why", priority=3))
    first = await claim(storage)
    await storage.apply([lifecycle.finish(first, Raised(a_failure(), after=0.0), Retry(), 0.5)])
    job = await claim(storage)
    ctx = Context(job=job, state={"db": 1}, remaining=lambda: -5.0, cancelled=lambda: True, slot="default-1-p")
    assert (ctx.job_id, ctx.task, ctx.queue, ctx.attempt, ctx.max_attempts) == (job.id, "t", "default", 2, 10)
    assert (ctx.priority, ctx.tags, ctx.reason, ctx.meta) == (3, ("x",), "why", {"m": 1})
    assert (ctx.token, ctx.pod, ctx.slot, ctx.state) == ("token", "p", "default-1-p", {"db": 1})
    assert (ctx.cancelled, ctx.stopping, ctx.remaining()) == (True, False, 0.0)
    assert ctx.deadline is not None
    assert ctx.deadline.timestamp() == clock.now() + 60
    assert ctx.last_error is not None
    assert ctx.last_error.message == "boom"


async def test_the_log_of_a_context_names_the_job(
    client: Client, storage: Unsteady, caplog: pytest.LogCaptureFixture
) -> None:
    await client.enqueue(a_call())
    job = await claim(storage)
    a_context(job).log.warning("look")
    (record,) = caplog.records
    assert (record.name, record.__dict__["job_id"], record.__dict__["attempt"]) == ("treadle.task.t", job.id, 1)


async def test_a_job_enqueued_in_a_run_is_there_at_once_and_knows_its_parent(client: Client, storage: Unsteady) -> None:
    await client.enqueue(a_call())
    job = await claim(storage)
    handle = await a_context(job, client).enqueue(a_call("child", meta='{"m":1}'))
    view = await handle.status()
    assert (view.task, view.meta) == ("child", {"m": 1, "treadle:parent": job.id})


async def test_a_follow_up_is_only_there_once_the_run_has_succeeded(client: Client, storage: Unsteady) -> None:
    await client.enqueue(a_call())
    job = await claim(storage)
    ctx = a_context(job, client)
    ctx.follow(a_call("child", delay=5.0))
    (child,) = ctx.follow_ups
    assert not await storage.get([child.id])
    await storage.apply([lifecycle.finish(job, Succeeded(None, None, ctx.follow_ups), Retry(), 0.5)])
    (written,) = await storage.get([child.id])
    assert (written.task, written.state) == ("child", "scheduled")


async def test_a_follow_up_has_no_other_transaction(client: Client, storage: Unsteady) -> None:
    await client.enqueue(a_call())
    with pytest.raises(ValueError, match="without within"):
        a_context(await claim(storage), client).follow(a_call(within=object()))


async def test_memory_takes_part_in_no_transaction() -> None:
    app = App("memory://")
    task = app.task(name="t")(lambda: None)
    with pytest.raises(TypeError, match="without within"):
        await task.using(within=object()).enqueue()
    await app.close()


# Callers without an event loop ---------------------------------------------------------------------------------------


class Looped(Kept):
    """Notes what is run on a loop."""

    def __init__(self, storage: Storage, run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run) -> None:
        super().__init__(storage)
        self.runs = 0
        self._run = run

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        self.runs += 1
        return self._run(work)


class Waiting(MemoryStorage):
    """Is away for so many calls that wait for it in their thread."""

    failures = 0

    def insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("away")
        return super().insert_sync(jobs)


def test_a_thread_without_a_loop_waits_for_the_storage_by_itself(clock: FakeClock) -> None:
    # A loop in between costs as much as the insert.
    keeper = Looped(MemoryStorage(clock))
    client = Client(keeper)
    handles = [client.enqueue_sync(a_call()), *client.enqueue_many_sync([a_call(), a_call()])]
    assert [each.outcome for each in handles] == ["inserted"] * 3
    assert (keeper.runs, dict(client.produced)) == (0, {("inserted", "default", "t"): 3})


def test_what_fails_for_a_thread_that_waits_is_tried_again_and_is_one_job(clock: FakeClock, sleeps: Sleeps) -> None:
    storage = Waiting(clock)
    storage.failures = 1
    keeper = Looped(storage)
    client = Client(keeper, sleep=sleeps)
    handle = client.enqueue_sync(a_call())
    assert (handle.outcome, keeper.runs, len(sleeps)) == ("inserted", 1, 1)
    assert [job.id for job in asyncio.run(storage.get([handle.id]))] == [handle.id]
    assert dict(client.produced) == {("inserted", "default", "t"): 1}


def test_hooks_are_told_on_a_loop_since_they_may_be_coroutines(clock: FakeClock) -> None:
    hooks, told = Hooks(), list[str]()

    async def hear(job: JobView) -> None:
        told.append(job.task)

    hooks.add("enqueued", hear)
    keeper = Looped(MemoryStorage(clock))
    Client(keeper, hooks=hooks).enqueue_sync(a_call())
    assert (keeper.runs, told) == (1, ["t"])
