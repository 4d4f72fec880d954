"""Retention: what is over its age goes, with all that hangs on it, and nothing else does."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...core.audit import AuditLine
from ...core.job import State, UniqueClaim
from ...core.limit import Take
from ...core.operation import new
from ...core.outcome import Outcome, Succeeded
from ...core.queue import DAY, FOR_EVER
from ...core.retention import RECORDS_KEPT
from ...ports import Storage
from ..clock import FakeClock
from .builders import a_job, an_id, failing, only
from .operators import ENDS
from .steps import Cases, a_live_pod, edit, end, ids, put, start, stats


async def ended(storage: Storage, outcome: Outcome | None = None, **fields: Any) -> str:
    pod = await a_live_pod(storage)
    return (await end(storage, await start(storage, pod, **fields), outcome or Succeeded())).id


async def pruned(storage: Storage, state: State = State.SUCCEEDED, **how: Any) -> int:
    """Passes until nothing is left."""
    removed, mark = 0, None
    while True:
        answer = await storage.prune(state, mark=mark, **how)
        removed, mark = removed + answer.removed, answer.mark
        if mark is None:
            return removed


class Retention(Cases):
    async def test_ended_jobs_go_at_their_age_and_not_before(self, storage: Storage, clock: FakeClock) -> None:
        days = {State.SUCCEEDED: 7, State.CANCELLED: 7, State.FAILED: 30}
        jobs = {state: await ended(storage, outcome) for state, outcome in ENDS.items()}
        gone = 0.0
        for state, age in sorted(days.items(), key=lambda each: each[1]):
            clock.advance(max(0.0, age * DAY - 1 - gone))
            gone = max(gone, age * DAY - 1)
            assert await pruned(storage, state) == 0
            assert list(await storage.get([jobs[state]]))
        clock.advance(2)
        for state in days:
            assert await pruned(storage, state) == 1
            assert list(await storage.get([jobs[state]])) == []

    async def test_live_jobs_never_go(self, storage: Storage, clock: FakeClock) -> None:
        await put(storage, queue="later", delay=900 * DAY)
        await put(storage, queue="idle")
        await start(storage)
        clock.advance(1000 * DAY)
        for state in ENDS:
            assert await pruned(storage, state) == 0
        assert len(await ids(storage)) == 3

    async def test_only_the_state_that_is_named_goes(self, storage: Storage, clock: FakeClock) -> None:
        for outcome in ENDS.values():
            await ended(storage, outcome)
        clock.advance(60 * DAY)
        assert await pruned(storage, State.FAILED) == 1
        assert len(await ids(storage)) == len(await ids(storage, "state:succeeded,cancelled")) == 2

    async def test_each_queue_has_its_own_age(self, storage: Storage, clock: FakeClock) -> None:
        await edit(storage, "short", keep_succeeded=60.0)
        await edit(storage, "none", keep_succeeded=0.0)
        await edit(storage, "all", keep_succeeded=FOR_EVER)
        kept = {name: await ended(storage, queue=name) for name in ("short", "none", "all", "usual")}
        assert await pruned(storage) == 1
        assert list(await storage.get([kept["none"]])) == []
        clock.advance(61)
        assert await pruned(storage) == 1
        assert list(await storage.get([kept["short"]])) == []
        clock.advance(5000 * DAY)
        assert await pruned(storage) == 1
        assert await ids(storage) == [kept["all"]]

    async def test_one_queue_can_be_pruned_alone(self, storage: Storage, clock: FakeClock) -> None:
        mail = await ended(storage, queue="mail")
        other = await ended(storage, queue="other")
        clock.advance(8 * DAY)
        assert await pruned(storage, queue="mail") == 1
        assert await ids(storage) == [other]
        assert list(await storage.get([mail])) == []

    async def test_the_oldest_go_first_and_a_mark_goes_on(self, storage: Storage, clock: FakeClock) -> None:
        oldest_first: list[str] = []
        for number in range(7):
            oldest_first.append(await ended(storage, queue=f"q{number % 2}"))
            clock.advance(1)
        clock.advance(8 * DAY)
        removed, mark, passes = 0, None, 0
        while passes == 0 or mark is not None:
            answer = await storage.prune(State.SUCCEEDED, mark=mark, limit=3)
            assert answer.removed <= 3
            removed, mark, passes = removed + answer.removed, answer.mark, passes + 1
        assert removed == 7
        assert passes <= 6
        assert await ids(storage) == []

    async def test_jobs_that_stay_do_not_keep_others_from_going(self, storage: Storage, clock: FakeClock) -> None:
        await edit(storage, "all", keep_succeeded=FOR_EVER)
        for _ in range(5):
            await ended(storage, queue="all")
            clock.advance(1)
        await ended(storage, queue="usual")
        clock.advance(8 * DAY)
        assert await pruned(storage, limit=2) == 1
        assert (await stats(storage, "all")).succeeded == 5

    async def test_what_hangs_on_a_job_goes_with_it(self, storage: Storage, clock: FakeClock) -> None:
        id = await ended(storage, failing(final=True), tags=("vip", "slow"))
        clock.advance(31 * DAY)
        assert await pruned(storage, State.FAILED) == 1
        assert (await ids(storage, "tag:vip"), await ids(storage, "error:broke")) == ([], [])
        # Asked for again under the same id, it is a new job with no past.
        await storage.insert([a_job(id=id)])
        (job,) = await storage.get([id])
        assert (job.errors, job.error_count, job.tags) == ((), 0, ())

    async def test_a_success_that_still_holds_its_key_stays(self, storage: Storage, clock: FakeClock) -> None:
        await edit(storage, keep_succeeded=0.0)
        rule = UniqueClaim("k", 3600.0, True)
        id = await ended(storage, unique=rule)
        assert await pruned(storage) == 0
        (again,) = await storage.insert([a_job(unique=rule)])
        assert (again.outcome, again.id) == ("duplicate", id)
        clock.advance(3601)
        assert await pruned(storage) == 1

    async def test_records_are_swept_after_their_time(self, storage: Storage, clock: FakeClock) -> None:
        saved = await storage.save_operation(new(an_id(), "cancel", "queue:mail"), None)
        over = await storage.save_operation(new(an_id(), "cancel", "queue:mail"), None)
        assert saved is not None
        assert over is not None
        await storage.advance(over, [], lambda _: replace(over, state="finished"))
        await storage.note([AuditLine(id=an_id(), act="queues.pause", subject="mail")])
        clock.advance(RECORDS_KEPT - 1)
        assert not any((await storage.sweep()).values())
        assert len(await storage.audit()) == 4
        clock.advance(2)
        swept = await storage.sweep()
        assert (swept["operations"], swept["audit"]) == (1, 4)
        assert [each.id for each in await storage.operations()] == [saved.id]  # it is under way
        assert list(await storage.audit()) == []

    async def test_keys_that_are_free_again_are_swept(self, storage: Storage, clock: FakeClock) -> None:
        for key, period in (("short", 60.0), ("long", 3600.0)):
            await ended(storage, unique=UniqueClaim(key, period, True))
        clock.advance(61)
        assert (await storage.sweep())["keys"] == 1
        assert (await storage.sweep())["keys"] == 0
        (again,) = await storage.insert([a_job(unique=UniqueClaim("long", 3600.0, True))])
        assert again.outcome == "duplicate"

    async def test_the_bucket_of_a_queue_without_a_rate_is_swept_once_it_is_full(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        await edit(storage, rate=1.0, burst=10)
        wish = Take(scope="queue:default", want=10)
        await storage.save_limit("slack", 1, 1.0)
        assert only(await storage.take([wish])).got == 10
        await edit(storage, rate=None, burst=None)
        assert (await storage.sweep())["limits"] == 0
        # Taken back and set again, the rate does not give its burst twice.
        await edit(storage, rate=1.0, burst=10)
        assert only(await storage.take([wish])).got == 0
        clock.advance(60)
        assert (await storage.sweep())["limits"] == 0
        await edit(storage, rate=None, burst=None)
        assert (await storage.sweep())["limits"] == 1
        assert [each.scope for each in await storage.limits()] == ["slack"]
