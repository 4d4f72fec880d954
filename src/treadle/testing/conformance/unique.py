"""At most one live job per unique key."""

from __future__ import annotations

from typing import Any, Final

from ...core import lifecycle
from ...core.job import State
from ...core.outcome import Interrupted, Snoozed, Stopped, Succeeded, Throttled
from ...ports import Inserted, Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_unique_job, an_error, failing, near, only
from .steps import Cases, a_live_pod, end, ids, look, put, rescue, start, take, take_one, write

HOSTILE_KEYS: Final = ("'; DROP TABLE jobs; --", 'a"b\\c', "100 %_*", "ключ 🗝", "a\nb", "A", "a", " a")


async def ask(storage: Storage, key: str = "key", /, **fields: Any) -> Inserted:
    return only(await storage.insert([a_unique_job(key, **fields)]))


async def start_unique(storage: Storage, **fields: Any) -> str:
    """A running job that holds the key."""
    pod = await a_live_pod(storage)
    id = await put(storage, a_unique_job(**fields))
    assert (await take_one(storage, pod)).id == id
    return id


class Uniqueness(Cases):
    async def test_a_second_request_is_a_duplicate_and_names_the_holder(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job())
        assert await ask(storage) == Inserted(holder, "duplicate")
        assert await ids(storage) == [holder]

    async def test_a_duplicate_leaves_the_holder_as_it_was(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job(args='{"n":1}'))
        before = await look(storage, holder)
        await ask(storage, args='{"n":2}', priority=9, delay=60.0)
        assert await look(storage, holder) == before

    async def test_a_job_shows_its_unique_key(self, storage: Storage) -> None:
        assert (await look(storage, await put(storage, a_unique_job("invoice:7")))).unique_key == "invoice:7"

    async def test_one_key_space_spans_all_queues_and_tasks(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job(queue="mail"))
        assert await ask(storage, queue="other", task="another") == Inserted(holder, "duplicate")

    async def test_different_keys_do_not_meet(self, storage: Storage) -> None:
        for key in HOSTILE_KEYS:
            assert (await ask(storage, key)).outcome == "inserted"
        assert len(await ids(storage)) == len(HOSTILE_KEYS)

    async def test_hostile_keys_are_held_like_any_other(self, storage: Storage) -> None:
        for key in HOSTILE_KEYS:
            holder = await put(storage, a_unique_job(key))
            assert await ask(storage, key) == Inserted(holder, "duplicate")

    async def test_jobs_without_a_key_never_meet(self, storage: Storage) -> None:
        await put(storage, a_job(), a_job())
        assert len(await ids(storage)) == 2

    async def test_of_equal_keys_in_one_call_the_first_is_inserted(self, storage: Storage) -> None:
        jobs = [a_unique_job(), a_job(), a_unique_job(), a_unique_job("other"), a_unique_job()]
        answers = await storage.insert(jobs)
        assert [answer.outcome for answer in answers] == ["inserted", "inserted", "duplicate", "inserted", "duplicate"]
        assert [answers[n].id for n in (2, 4)] == [jobs[0].id, jobs[0].id]

    async def test_a_scheduled_job_holds_its_key(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job(delay=3600.0))
        assert await ask(storage) == Inserted(holder, "duplicate")

    async def test_a_running_job_holds_its_key(self, storage: Storage) -> None:
        holder = await start_unique(storage)
        assert await ask(storage) == Inserted(holder, "duplicate")

    async def test_a_job_holds_its_key_through_every_return(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        holder = await put(storage, a_unique_job())
        for outcome in (failing(after=10.0), Snoozed(10.0), Throttled(10.0), Interrupted()):
            await end(storage, await take_one(storage, pod), outcome)
            assert await ask(storage) == Inserted(holder, "duplicate")
            clock.advance(10)
            await storage.beat(pod, LEASE, [])

    async def test_a_rescued_job_holds_its_key(self, storage: Storage, clock: FakeClock) -> None:
        holder = await start_unique(storage)
        clock.advance(LEASE + 1)
        await rescue(storage, await look(storage, holder))
        assert await ask(storage) == Inserted(holder, "duplicate")

    async def test_every_end_frees_the_key(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for outcome in (Succeeded(), failing(final=True), Stopped(an_error(kind="cancelled"))):
            await put(storage, a_unique_job())
            await end(storage, await take_one(storage, pod), outcome)
            assert (await ask(storage, queue="elsewhere")).outcome == "inserted"
            holder = only(await ids(storage, "queue:elsewhere state:ready"))
            await write(storage, lifecycle.cancel(await look(storage, holder)))

    async def test_a_cancel_before_the_run_frees_the_key(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job(delay=60.0))
        await write(storage, lifecycle.cancel(await look(storage, holder)))
        assert (await ask(storage)).outcome == "inserted"

    async def test_an_ended_job_does_not_free_the_key_of_its_successor(self, storage: Storage) -> None:
        first = await start_unique(storage)
        await end(storage, await look(storage, first), Succeeded())
        second = await put(storage, a_unique_job())
        await write(storage, lifecycle.remove(await look(storage, first)))
        assert await ask(storage) == Inserted(second, "duplicate")

    async def test_a_period_holds_the_key_inside_its_window_only(self, storage: Storage, clock: FakeClock) -> None:
        clock.step_wall(3600 - clock.now() % 3600)  # the start of an hour
        holder = await put(storage, a_unique_job(period=3600.0, delay=86_400.0))
        clock.advance(3599)
        assert await ask(storage, period=3600.0) == Inserted(holder, "duplicate")
        clock.advance(1)
        assert (await ask(storage, period=3600.0)).outcome == "inserted"

    async def test_windows_are_fixed_and_do_not_slide(self, storage: Storage, clock: FakeClock) -> None:
        clock.step_wall(3600 - clock.now() % 3600 - 1)  # a second before an hour ends
        await put(storage, a_unique_job(period=3600.0))
        clock.advance(1)
        assert (await ask(storage, period=3600.0)).outcome == "inserted"

    async def test_a_success_holds_its_key_until_the_period_ends_if_asked(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        clock.step_wall(3600 - clock.now() % 3600)
        rule = {"period": 3600.0, "include_succeeded": True}
        holder = await start_unique(storage, **rule)
        await end(storage, await look(storage, holder), Succeeded())
        assert await ask(storage, **rule) == Inserted(holder, "duplicate")
        clock.advance(3600)
        assert (await ask(storage, **rule)).outcome == "inserted"

    async def test_a_success_frees_its_key_inside_the_period_if_not_asked(self, storage: Storage) -> None:
        holder = await start_unique(storage, period=3600.0)
        await end(storage, await look(storage, holder), Succeeded())
        assert (await ask(storage, period=3600.0)).outcome == "inserted"

    async def test_a_failure_or_cancel_frees_the_key_inside_the_period(self, storage: Storage) -> None:
        rule = {"period": 3600.0, "include_succeeded": True}
        pod = await a_live_pod(storage)
        for outcome in (failing(final=True), Stopped(an_error(kind="cancelled"))):
            assert (await ask(storage, **rule)).outcome == "inserted"
            await end(storage, await take_one(storage, pod), outcome)
        assert (await ask(storage, **rule)).outcome == "inserted"

    async def test_a_removed_success_holds_nothing(self, storage: Storage) -> None:
        rule = {"period": 3600.0, "include_succeeded": True}
        holder = await start_unique(storage, **rule)
        await end(storage, await look(storage, holder), Succeeded())
        await write(storage, lifecycle.remove(await look(storage, holder)))
        assert (await ask(storage, **rule)).outcome == "inserted"

    async def test_a_success_that_holds_its_key_is_not_replaced(self, storage: Storage) -> None:
        rule = {"period": 3600.0, "include_succeeded": True, "on_conflict": "replace"}
        holder = await start_unique(storage, **rule)
        before = await end(storage, await look(storage, holder), Succeeded())
        assert await ask(storage, **rule, args='{"n":2}') == Inserted(holder, "duplicate")
        assert await look(storage, holder) == before


class Replacing(Cases):
    async def test_replace_overwrites_a_holder_in_place(self, storage: Storage, clock: FakeClock) -> None:
        holder = await put(storage, a_unique_job(args='{"n":1}', delay=60.0, tags=("old",)))
        new = {"args": '{"n":2}', "format": 2, "priority": 7, "tags": ("new",), "meta": '{"m":1}', "reason": "better"}
        assert await ask(storage, on_conflict="replace", delay=5.0, **new) == Inserted(holder, "replaced")
        job = await look(storage, holder)
        assert {name: getattr(job, name) for name in new} == new
        assert near(job.run_at, clock.now() + 5)
        assert await ids(storage) == [holder]

    async def test_replace_clears_what_the_new_request_leaves_out(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job(tags=("old",), meta='{"m":1}', reason="old", priority=9))
        await ask(storage, on_conflict="replace")
        job = await look(storage, holder)
        assert (job.tags, job.meta, job.reason, job.priority) == ((), None, None, 0)

    async def test_a_replaced_job_is_claimed_by_its_new_time(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        holder = await put(storage, a_unique_job())
        await ask(storage, on_conflict="replace", delay=10.0, args='{"n":2}')
        assert await take(storage, pod) == []
        clock.advance(10)
        job = await take_one(storage, pod)
        assert (job.id, job.args) == (holder, '{"n":2}')

    async def test_replace_gives_a_retrying_job_all_its_attempts_back(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        holder = await put(storage, a_unique_job())
        await end(storage, await take_one(storage, pod), failing(after=1.0))
        clock.advance(1)
        job = await take_one(storage, pod)
        clock.advance(LEASE + 1)
        assert (await rescue(storage, job)).crashes == 1
        assert await ask(storage, on_conflict="replace") == Inserted(holder, "replaced")
        job = await look(storage, holder)
        assert (job.attempt, job.crashes, job.error_count) == (0, 0, 2)

    async def test_a_running_holder_is_not_replaced(self, storage: Storage) -> None:
        holder = await start_unique(storage)
        before = await look(storage, holder)
        assert await ask(storage, on_conflict="replace", args='{"n":2}') == Inserted(holder, "duplicate")
        assert await look(storage, holder) == before

    async def test_the_rule_of_the_newcomer_decides(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job(on_conflict="replace"))
        assert await ask(storage) == Inserted(holder, "duplicate")

    async def test_a_replaced_holder_still_holds_its_key(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job())
        await ask(storage, on_conflict="replace")
        assert await ask(storage) == Inserted(holder, "duplicate")


class RevivingUnique(Cases):
    async def test_a_revive_takes_the_key_again(self, storage: Storage) -> None:
        holder = await start_unique(storage)
        await end(storage, await look(storage, holder), Succeeded())
        assert (await write(storage, lifecycle.revive(await look(storage, holder)))).accepted
        assert await ask(storage) == Inserted(holder, "duplicate")

    async def test_a_revive_is_refused_while_a_live_job_holds_the_key(self, storage: Storage) -> None:
        first = await start_unique(storage)
        before = await end(storage, await look(storage, first), failing(final=True))
        second = await put(storage, a_unique_job())
        answer = await write(storage, lifecycle.revive(before))
        assert (answer.accepted, answer.state) == (False, State.FAILED)
        assert answer.error
        assert await look(storage, first) == before
        assert (await look(storage, second)).state is State.READY

    async def test_a_refused_revive_may_be_sent_again_once_the_key_is_free(self, storage: Storage) -> None:
        first = await start_unique(storage)
        change = lifecycle.revive(await end(storage, await look(storage, first), failing(final=True)))
        second = await put(storage, a_unique_job())
        assert not (await write(storage, change)).accepted
        await write(storage, lifecycle.cancel(await look(storage, second)))
        assert (await write(storage, change)).accepted

    async def test_of_two_ended_jobs_with_one_key_only_one_is_revived(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        ended = [await end(storage, await start(storage, pod, unique=a_unique_job().unique), Succeeded()) for _ in "ab"]
        answers = await storage.apply([change for job in ended if (change := lifecycle.revive(job)) is not None])
        assert [answer.accepted for answer in answers] == [True, False]
