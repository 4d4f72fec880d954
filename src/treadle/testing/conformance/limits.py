"""Rate limits: token buckets with leases, whose arithmetic is the core's. And named locks."""

from __future__ import annotations

import asyncio
from typing import Any

from ...core.limit import Bucket, Lease, Take, Taken
from ...ports import Storage
from ..clock import FakeClock
from .builders import TICK, near, only
from .steps import Cases, edit


def wish(want: int = 1, scope: str = "slack", **fields: Any) -> Take:
    return Take(scope=scope, want=want, **fields)


async def draw(storage: Storage, want: int = 1, scope: str = "slack", **fields: Any) -> Taken:
    return only(await storage.take([wish(want, scope, **fields)]))


async def limit(storage: Storage, scope: str = "slack") -> Bucket:
    return only([each for each in await storage.limits() if each.scope == scope])


class Limits(Cases):
    async def test_a_new_limit_is_full(self, storage: Storage) -> None:
        made = await storage.save_limit("slack", 5, 2.0)
        assert made is not None
        assert (made.scope, made.capacity, made.refill, made.version) == ("slack", 5, 2.0, 1)
        row = await limit(storage)
        assert (row.tokens, row.leases) == (5.0, ())

    async def test_a_take_gives_what_is_there_and_no_more(self, storage: Storage) -> None:
        await storage.save_limit("slack", 5, 2.0)
        first = await draw(storage, 3)
        second = await draw(storage, 3)
        assert (first.got, second.got) == (3, 2)
        assert (first.capacity, first.refill) == (5, 2.0)

    async def test_a_take_gives_no_less_than_the_least(self, storage: Storage, clock: FakeClock) -> None:
        await storage.save_limit("slack", 5, 2.0)
        await draw(storage, 4, lease=0.0)
        taken = await draw(storage, 3, least=3)
        assert taken.got == 0
        assert near(taken.wait, 1.0)
        clock.advance(taken.wait + TICK)
        assert (await draw(storage, 3, least=3)).got == 3

    async def test_tokens_grow_by_the_storages_clock_up_to_the_capacity(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        await storage.save_limit("slack", 5, 2.0)
        await draw(storage, 5, lease=0.0)
        clock.advance(1.0 + TICK)
        assert (await draw(storage, 5, lease=0.0)).got == 2
        clock.advance(3_600)
        assert (await draw(storage, 9, lease=0.0)).got == 5

    async def test_what_is_leased_counts_until_its_lease_ends(self, storage: Storage, clock: FakeClock) -> None:
        await storage.save_limit("slack", 2, 10.0)
        await draw(storage, 2, lease=0.5)
        clock.advance(0.5 - TICK)
        assert (await draw(storage, 1)).got == 0
        clock.advance(0.1 + 2 * TICK)
        assert (await draw(storage, 2)).got == 1

    async def test_what_is_handed_back_in_time_is_there_again(self, storage: Storage, clock: FakeClock) -> None:
        await storage.save_limit("slack", 1, 0.01)
        taken = await draw(storage, 1)
        clock.advance(0.5)
        assert (await draw(storage, 1, back=Lease(1, taken.until))).got == 1

    async def test_what_is_handed_back_too_late_is_forfeited(self, storage: Storage, clock: FakeClock) -> None:
        await storage.save_limit("slack", 1, 0.01)
        taken = await draw(storage, 1)
        clock.advance(1.0 + TICK)
        assert (await draw(storage, 1, back=Lease(1, taken.until))).got == 0

    async def test_a_scope_that_nobody_has_declared_is_said_to_be_unknown(self, storage: Storage) -> None:
        taken = await draw(storage)
        assert (taken.got, taken.problem) == (0, "unknown")
        assert list(await storage.limits()) == []

    async def test_more_than_the_capacity_is_refused_and_costs_nothing(self, storage: Storage) -> None:
        await storage.save_limit("slack", 5, 2.0)
        taken = await draw(storage, 6, least=6)
        assert (taken.got, taken.problem, taken.capacity) == (0, "too many", 5)
        assert (await draw(storage, 5)).got == 5

    async def test_many_scopes_at_once_are_answered_in_order(self, storage: Storage) -> None:
        await storage.save_limit("a", 1, 1.0)
        await storage.save_limit("b", 2, 1.0)
        answers = await storage.take([wish(5, "b"), wish(5, "nobody"), wish(5, "a")])
        assert [(each.got, each.problem) for each in answers] == [(2, None), (0, "unknown"), (1, None)]

    async def test_a_drain_empties_the_bucket(self, storage: Storage, clock: FakeClock) -> None:
        await storage.save_limit("slack", 5, 1.0)
        assert await storage.drain_limit("slack")
        assert (await draw(storage)).got == 0
        clock.advance(1.0 + TICK)
        assert (await draw(storage)).got == 1
        assert not await storage.drain_limit("nobody")

    async def test_an_edit_holds_from_the_next_take_and_cuts_the_tokens(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        await storage.save_limit("slack", 10, 1.0)
        edited = await storage.save_limit("slack", 3, 6.0)
        assert edited is not None
        assert edited.version == 2
        assert (await draw(storage, 10, lease=0.0)).got == 3
        clock.advance(0.5 + TICK)
        assert (await draw(storage, 10)).got == 3

    async def test_an_edit_of_a_limit_that_changed_meanwhile_is_refused(self, storage: Storage) -> None:
        await storage.save_limit("slack", 5, 1.0)
        assert await storage.save_limit("slack", 6, 1.0, 1) is not None
        assert await storage.save_limit("slack", 7, 1.0, 1) is None
        assert await storage.save_limit("nobody", 7, 1.0, 1) is None
        assert [(each.scope, each.capacity) for each in await storage.limits()] == [("slack", 6)]

    async def test_a_declaration_never_overwrites_an_edit(self, storage: Storage) -> None:
        assert await storage.save_limit("slack", 5, 1.0, 0) is not None
        await storage.save_limit("slack", 9, 1.0)
        assert await storage.save_limit("slack", 5, 1.0, 0) is None
        assert (await limit(storage)).capacity == 9

    async def test_a_removed_limit_is_unknown(self, storage: Storage) -> None:
        await storage.save_limit("slack", 5, 1.0)
        assert await storage.remove_limit("slack")
        assert not await storage.remove_limit("slack")
        assert (await draw(storage)).problem == "unknown"

    async def test_many_takers_at_once_get_no_more_than_there_is(self, storage: Storage) -> None:
        await storage.save_limit("slack", 10, 0.001)
        answers = await asyncio.gather(*(draw(storage, 3) for _ in range(20)))
        assert sum(answer.got for answer in answers) == 10


class QueueRates(Cases):
    async def test_a_queue_without_a_rate_gives_all_that_is_wanted(self, storage: Storage) -> None:
        taken = await draw(storage, 500, "queue:mail")
        assert (taken.got, taken.capacity, taken.problem) == (500, None, None)
        assert list(await storage.limits()) == []

    async def test_a_queues_rate_is_its_bucket(self, storage: Storage, clock: FakeClock) -> None:
        await edit(storage, "mail", rate=2.0, burst=5)
        taken = await draw(storage, 50, "queue:mail", lease=0.0)
        assert (taken.got, taken.capacity, taken.refill) == (5, 5, 2.0)
        clock.advance(1.0 + TICK)
        assert (await draw(storage, 50, "queue:mail")).got == 2

    async def test_without_a_burst_a_second_of_the_rate_may_come_at_once(self, storage: Storage) -> None:
        await edit(storage, "mail", rate=3.0)
        await edit(storage, "slow", rate=0.1)
        assert (await draw(storage, 50, "queue:mail")).got == 3
        assert (await draw(storage, 50, "queue:slow")).got == 1

    async def test_an_edit_of_the_rate_holds_from_the_next_take(self, storage: Storage, clock: FakeClock) -> None:
        await edit(storage, "mail", rate=2.0, burst=5)
        assert (await draw(storage, 50, "queue:mail", lease=0.0)).got == 5
        await edit(storage, "mail", rate=100.0)
        assert (await draw(storage, 50, "queue:mail")).got == 0
        clock.advance(0.02 + TICK)
        assert (await draw(storage, 50, "queue:mail")).got == 2
        await edit(storage, "mail", rate=None)
        assert (await draw(storage, 50, "queue:mail")).got == 50

    async def test_a_queues_rate_is_shown_as_it_is_set_now(self, storage: Storage) -> None:
        await edit(storage, "mail", rate=2.0, burst=5)
        await draw(storage, 1, "queue:mail")
        await storage.save_limit("slack", 1, 1.0)
        await edit(storage, "mail", rate=3.0, burst=4)
        assert [(each.scope, each.capacity, each.refill) for each in await storage.limits()] == [
            ("queue:mail", 4, 3.0),
            ("slack", 1, 1.0),
        ]
        await edit(storage, "mail", rate=None)
        assert [each.scope for each in await storage.limits()] == ["slack"]


class Locks(Cases):
    async def test_one_owner_at_a_time(self, storage: Storage) -> None:
        first = await storage.seize("import", "ann", 60.0)
        second = await storage.seize("import", "bob", 60.0)
        assert (first.name, first.owner, second.owner) == ("import", "ann", "ann")
        assert first.fence == second.fence
        assert near(second.left, 60.0)
        assert (await storage.seize("other", "bob", 60.0)).owner == "bob"

    async def test_of_many_at_once_one_gets_it(self, storage: Storage) -> None:
        found = await asyncio.gather(*(storage.seize("import", f"owner-{n}", 60.0) for n in range(20)))
        assert len({lock.owner for lock in found}) == 1
        assert len({lock.fence for lock in found}) == 1

    async def test_its_holder_may_take_it_again_and_keeps_the_fence(self, storage: Storage, clock: FakeClock) -> None:
        first = await storage.seize("import", "ann", 60.0)
        clock.advance(50)
        again = await storage.seize("import", "ann", 60.0, fence=first.fence)
        assert (again.owner, again.fence) == ("ann", first.fence)
        assert near(again.left, 60.0)
        clock.advance(50)
        assert (await storage.seize("import", "bob", 60.0)).owner == "ann"

    async def test_another_holder_of_the_same_owner_takes_over_with_a_higher_fence(self, storage: Storage) -> None:
        first = await storage.seize("import", "ann", 60.0)
        second = await storage.seize("import", "ann", 30.0)
        assert second.owner == "ann"
        assert second.fence > first.fence
        assert near(second.left, 30.0)
        refused = await storage.seize("import", "ann", 60.0, fence=first.fence)
        assert refused.fence == second.fence
        assert near(refused.left, 30.0), "what the first one wants renewed is not its own"

    async def test_the_first_holders_exit_frees_nothing_after_a_takeover(self, storage: Storage) -> None:
        """Two attempts of a job with `owner=ctx.job_id`: the first one, long presumed dead, freed the second one's."""
        first = await storage.seize("import", "ann", 60.0)
        second = await storage.seize("import", "ann", 60.0)
        assert not await storage.free("import", "ann", fence=first.fence)
        assert only(await storage.locks()).fence == second.fence
        assert await storage.free("import", "ann", fence=second.fence)
        assert list(await storage.locks()) == []

    async def test_a_holding_that_is_gone_is_not_renewed(self, storage: Storage, clock: FakeClock) -> None:
        first = await storage.seize("import", "ann", 60.0)
        await storage.free("import", None)
        assert (await storage.seize("import", "ann", 60.0, fence=first.fence)).owner == ""
        assert list(await storage.locks()) == []
        await storage.seize("import", "bob", 1.0)
        clock.advance(2)
        assert (await storage.seize("import", "ann", 60.0, fence=first.fence)).owner == "bob"

    async def test_a_holding_that_ran_out_and_that_nobody_has_taken_is_renewed(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        first = await storage.seize("import", "ann", 60.0)
        clock.advance(61)
        again = await storage.seize("import", "ann", 60.0, fence=first.fence)
        assert (again.owner, again.fence) == ("ann", first.fence)
        assert (await storage.seize("import", "bob", 60.0)).owner == "ann"

    async def test_a_lock_that_is_over_may_be_taken_by_anybody(self, storage: Storage, clock: FakeClock) -> None:
        first = await storage.seize("import", "ann", 60.0)
        clock.advance(60 - TICK)
        assert (await storage.seize("import", "bob", 60.0)).owner == "ann"
        clock.advance(2 * TICK)
        taken = await storage.seize("import", "bob", 60.0)
        assert taken.owner == "bob"
        assert taken.fence > first.fence

    async def test_a_lock_of_an_earlier_boot_is_over(self, storage: Storage, clock: FakeClock) -> None:
        await storage.seize("import", "ann", 60.0)
        clock.reboot()
        assert list(await storage.locks()) == []
        assert (await storage.seize("import", "bob", 60.0)).owner == "bob"

    async def test_a_wall_clock_that_is_set_ends_no_lock(self, storage: Storage, clock: FakeClock) -> None:
        await storage.seize("import", "ann", 60.0)
        clock.step_wall(3_600)
        assert (await storage.seize("import", "bob", 60.0)).owner == "ann"

    async def test_only_its_owner_lets_go_of_a_lock(self, storage: Storage) -> None:
        await storage.seize("import", "ann", 60.0)
        assert not await storage.free("import", "bob")
        assert await storage.free("import", "ann")
        assert not await storage.free("import", "ann")
        assert (await storage.seize("import", "bob", 60.0)).owner == "bob"

    async def test_an_operator_may_free_whosever_lock(self, storage: Storage) -> None:
        await storage.seize("import", "ann", 60.0)
        assert await storage.free("import", None)
        assert not await storage.free("import", None)

    async def test_a_fence_never_comes_again(self, storage: Storage, clock: FakeClock) -> None:
        fences = [(await storage.seize("import", "ann", 60.0)).fence]
        await storage.free("import", "ann")
        fences.append((await storage.seize("import", "ann", 60.0)).fence)
        clock.advance(61)
        await storage.sweep_locks()
        fences.append((await storage.seize("import", "ann", 60.0)).fence)
        assert fences == sorted(set(fences))

    async def test_the_locks_that_are_held_are_listed_and_the_others_swept(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        await storage.seize("short", "ann", 10.0)
        await storage.seize("long", "bob", 60.0)
        assert await storage.sweep_locks() == 0
        clock.advance(10 + TICK)
        (held,) = await storage.locks()
        assert (held.name, held.owner) == ("long", "bob")
        assert near(held.left, 50.0 - TICK)
        assert await storage.sweep_locks() == 1
        assert await storage.sweep_locks() == 0
