"""Changes that come too late: a token that is no longer current changes nothing, whatever the Change is."""

from __future__ import annotations

from msgspec.structs import replace

from ...core import lifecycle
from ...core.backoff import Retry
from ...core.job import Change, Job, State
from ...core.outcome import Interrupted, Snoozed, Stopped, Succeeded, Throttled, TimedOut, Undecodable
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_token, an_error, failing, finished
from .steps import Cases, a_live_pod, end, look, put, queue, rescue, start, start_and_lose, take_one, write


async def is_refused(storage: Storage, change: Change | None, now: Job) -> None:
    """The Change is told that it lost, and nothing of it happened."""
    before = await look(storage, now.id)
    answer = await write(storage, change)
    assert not answer.accepted
    assert (answer.state, answer.cancel_wanted) == (now.state, False)
    assert await look(storage, now.id) == before


class Stale(Cases):
    async def test_a_stale_success_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, Succeeded('"late"')), new)

    async def test_a_stale_retry_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, failing()), new)

    async def test_a_stale_failure_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, failing(final=True)), new)

    async def test_a_stale_timeout_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, TimedOut(an_error(kind="timeout"))), new)

    async def test_a_stale_undecodable_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, Undecodable(an_error(kind="undecodable"))), new)

    async def test_a_stale_snooze_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, Snoozed(60.0)), new)

    async def test_a_stale_throttle_changes_nothing_and_cools_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, Throttled(60.0)), new)
        assert (await queue(storage)).cool_until is None

    async def test_a_stale_release_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, Interrupted()), new)

    async def test_a_stale_stop_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, finished(old, Stopped(an_error(kind="cancelled"))), new)

    async def test_a_stale_cancel_does_not_reach_the_next_claim(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, lifecycle.cancel(old), new)

    async def test_a_stale_rescue_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        clock.advance(LEASE + 1)  # the second pod has lapsed too, so only the token can refuse
        await is_refused(storage, lifecycle.rescue(old, "pod"), new)

    async def test_a_stale_rescue_declares_nobody_lost(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        clock.advance(LEASE + 1)
        await write(storage, lifecycle.rescue(old, "pod"))
        assert new.pod is not None
        assert not (await storage.beat(new.pod, LEASE, [])).lost

    async def test_a_stale_resolution_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        """A pod that was presumed dead comes back, and would begin the run that another pod has."""
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, lifecycle.resolve(old, Retry(max_attempts=1), 60.0), new)

    async def test_a_stale_expiry_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock, timeout=5.0)
        await is_refused(storage, lifecycle.expire(old, 0.5), new)

    async def test_a_stale_obedience_to_a_cancel_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await is_refused(storage, lifecycle.obey_cancel(finished(old, failing())), new)

    async def test_a_stale_success_inserts_no_follow_ups(self, storage: Storage, clock: FakeClock) -> None:
        old, _ = await start_and_lose(storage, clock)
        follow_up = a_job(queue="next")
        await write(storage, finished(old, Succeeded(follow_ups=(follow_up,))))
        assert await storage.get([follow_up.id]) == []

    async def test_a_token_that_was_never_given_changes_nothing(self, storage: Storage) -> None:
        job = await start(storage)
        await is_refused(storage, finished(replace(job, token=a_token()), Succeeded()), job)

    async def test_the_true_owner_wins_after_a_stale_change(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await write(storage, finished(old, failing(final=True)))
        assert (await end(storage, new, Succeeded())).state is State.SUCCEEDED

    async def test_a_finish_between_rescue_and_next_claim_is_stale(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        ready = await rescue(storage, job)
        for outcome in (Succeeded(), failing(), Snoozed(5.0), Throttled(), Interrupted()):
            await is_refused(storage, finished(job, outcome), ready)

    async def test_a_finish_after_the_job_failed_elsewhere_is_stale(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        failed = await end(storage, new, failing(final=True))
        await is_refused(storage, finished(old, Succeeded()), failed)

    async def test_a_success_is_never_undone(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        done = await end(storage, new, Succeeded('"first"'))
        for outcome in (Succeeded('"second"'), failing(), failing(final=True), Snoozed(5.0), Throttled()):
            await is_refused(storage, finished(old, outcome), done)
        await is_refused(storage, lifecycle.rescue(old, "pod"), done)
        await is_refused(storage, lifecycle.expire(old, 0.5), done)
        await is_refused(storage, lifecycle.cancel(old), done)

    async def test_a_cancel_after_its_own_runs_success_is_too_late(self, storage: Storage) -> None:
        job = await start(storage)
        done = await end(storage, job, Succeeded())
        await is_refused(storage, lifecycle.cancel(job), done)

    async def test_a_cancel_after_its_own_runs_retry_is_too_late(self, storage: Storage) -> None:
        job = await start(storage)
        waiting = await end(storage, job, failing())
        await is_refused(storage, lifecycle.cancel(job), waiting)

    async def test_the_same_attempt_number_after_a_revive_is_no_excuse(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        old, new = await start_and_lose(storage, clock)
        await write(storage, lifecycle.revive(await end(storage, new, failing(final=True))))
        assert new.pod is not None
        third = await take_one(storage, new.pod)
        assert third.attempt == old.attempt
        await is_refused(storage, finished(old, Succeeded()), third)

    async def test_the_same_attempt_number_after_a_snooze_is_no_excuse(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        first = await start(storage, pod)
        await end(storage, first, Snoozed(1.0))
        clock.advance(1)
        second = await take_one(storage, pod)
        assert second.attempt == first.attempt
        answer = await write(storage, finished(first, Succeeded('"late"')))
        assert answer.repeated or not answer.accepted
        assert await look(storage, first.id) == second

    async def test_an_old_token_is_refused_after_a_second_snooze(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await end(storage, new, Snoozed(1.0))
        clock.advance(1)
        assert new.pod is not None
        third = await take_one(storage, new.pod)
        assert third.attempt == new.attempt
        await is_refused(storage, finished(old, Snoozed(1.0)), third)

    async def test_a_finish_of_a_job_that_nobody_runs_is_refused(self, storage: Storage) -> None:
        ready = await look(storage, await put(storage))
        await is_refused(storage, finished(replace(ready, token=a_token()), Succeeded()), ready)
