"""Schedules: definitions by compare-and-set, and fires that happen once."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from ...core import firing
from ...core import schedule as scheduling
from ...core.audit import AuditLine
from ...core.firing import Fire, Fired
from ...core.job import State, UniqueClaim
from ...core.outcome import Succeeded
from ...core.schedule import Plan, Schedule
from ...ports import Storage
from ..clock import FakeClock
from .builders import an_id, only
from .signals import Ear
from .steps import Cases, a_live_pod, end, ids, look, take_one

HOUR = 3600.0


def a_plan(**fields: Any) -> Plan:
    wanted: dict[str, Any] = {"expression": "0 * * * *", "task": "work", "queue": "default", **fields}
    return scheduling.check(Plan(**wanted))


async def plan(storage: Storage, clock: FakeClock, name: str = "hourly", **fields: Any) -> Schedule:
    """A schedule that is there, from now on."""
    new = scheduling.add(name, a_plan(**fields), clock.now())
    assert await storage.save_schedule(new.schedule, 0)
    return new.schedule


async def scheduled(storage: Storage, name: str = "hourly") -> Schedule:
    _, found = await storage.schedules()
    return only([each for each in found if each.name == name])


async def wish(storage: Storage, name: str = "hourly") -> Fire:
    """What a leader that looks now would send."""
    now, _ = await storage.schedules()
    schedule = await scheduled(storage, name)
    found = firing.due(schedule, now)
    assert found is not None
    return firing.fire(schedule, found)


async def shoot(storage: Storage, name: str = "hourly") -> Fired:
    return await storage.fire(await wish(storage, name))


async def change(storage: Storage, edit: scheduling.Edit) -> bool:
    return await storage.save_schedule(edit.schedule, edit.expected, cursor=edit.cursor)


class Definitions(Cases):
    async def test_a_schedule_is_read_as_it_was_written(self, storage: Storage, clock: FakeClock) -> None:
        assert await storage.schedules() == (clock.now(), [])
        rule = UniqueClaim("key", 60.0, True, "replace")
        fields: dict[str, Any] = {
            "args": '{"n":"ü"}',
            "tags": ("a", "b"),
            "unique": rule,
            "timeout": 5.0,
            "zone": "Asia/Kathmandu",
        }
        written = await plan(storage, clock, **fields)
        assert await scheduled(storage) == written

    async def test_the_clock_comes_with_the_schedules(self, storage: Storage, clock: FakeClock) -> None:
        clock.advance(1.5)
        now, _ = await storage.schedules()
        assert abs(now - clock.now()) < 0.001

    async def test_only_the_expected_version_is_overwritten(self, storage: Storage, clock: FakeClock) -> None:
        first = await plan(storage, clock)
        mine = scheduling.edit(first, {"priority": 1}, clock.now())
        theirs = scheduling.edit(first, {"priority": 2}, clock.now())
        assert await change(storage, mine)
        assert not await change(storage, theirs)
        assert (await scheduled(storage)).plan.priority == 1
        assert not await storage.save_schedule(scheduling.add("hourly", a_plan(priority=3), 0.0).schedule, 0)
        assert not await storage.save_schedule(scheduling.add("other", a_plan(), 0.0).schedule, 1)
        assert len((await storage.schedules())[1]) == 1

    async def test_a_save_sent_again_answers_as_the_first_time(self, storage: Storage, clock: FakeClock) -> None:
        first = await plan(storage, clock)
        assert await storage.save_schedule(first, 0)
        mine = scheduling.edit(first, {"priority": 1}, clock.now())
        assert await change(storage, mine)
        assert await change(storage, mine)

    async def test_an_edit_leaves_the_progress_alone(self, storage: Storage, clock: FakeClock) -> None:
        first = await plan(storage, clock)
        clock.advance(HOUR)
        await shoot(storage)
        before = await scheduled(storage)
        assert await change(storage, scheduling.edit(first, {"priority": 1}, clock.now()))
        after = await scheduled(storage)
        assert after.progress == before.progress
        assert after.plan.priority == 1

    async def test_a_given_cursor_moves_and_nothing_else(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock)
        clock.advance(HOUR)
        await shoot(storage)
        before = await scheduled(storage)
        clock.advance(HOUR)
        assert await change(storage, scheduling.resume(before, clock.now()))
        after = await scheduled(storage)
        assert after.progress == msgspec.structs.replace(before.progress, cursor=clock.now())

    async def test_of_many_editors_at_once_one_wins(self, storage: Storage, clock: FakeClock) -> None:
        first = await plan(storage, clock)
        edits = [scheduling.edit(first, {"priority": n}, clock.now()) for n in range(20)]
        won = await asyncio.gather(*(change(storage, edit) for edit in edits))
        assert sum(won) == 1
        assert (await scheduled(storage)).plan.priority == won.index(True)


class Fires(Cases):
    async def test_a_fire_inserts_its_job_and_moves_the_cursor(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock, args='{"n":1}', priority=5, timeout=9.0, max_attempts=3, tags=("t",))
        clock.advance(HOUR)
        sent = await wish(storage)
        fired = await storage.fire(sent)
        assert (fired.outcome, fired.repeated) == ("fired", False)
        job = await look(storage, only(fired.jobs))
        assert (job.task, job.queue, job.state, job.args) == ("work", "default", State.READY, '{"n":1}')
        assert (job.priority, job.timeout, job.max_attempts, job.tags) == (5, 9.0, 3, ("t",))
        assert job.reason == "schedule hourly"
        assert await ids(storage, "schedule:hourly") == [job.id]
        progress = (await scheduled(storage)).progress
        assert (progress.cursor, progress.last_fire) == (sent.to, sent.to)
        assert (progress.fired, progress.skipped, progress.missed, progress.errors) == (1, 0, 0, 0)
        record = only(await storage.fires("hourly"))
        assert (record.fire_at, record.outcome, record.job, record.manual) == (sent.to, "fired", job.id, False)
        assert abs(record.at - clock.now()) < 0.001

    async def test_a_fire_sent_again_is_one_job(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock)
        clock.advance(HOUR)
        sent = await wish(storage)
        first = await storage.fire(sent)
        again = await storage.fire(sent)
        assert again == msgspec.structs.replace(first, repeated=True)
        assert len(await ids(storage)) == 1
        assert (await scheduled(storage)).progress.fired == 1

    async def test_many_leaders_at_once_fire_once(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock)
        for _ in range(3):
            clock.advance(HOUR)
            sent = await wish(storage)
            fired = await asyncio.gather(*(storage.fire(sent) for _ in range(8)))
            assert sum(each.outcome == "fired" and not each.repeated for each in fired) == 1
        assert len(await ids(storage)) == 3
        assert (await scheduled(storage)).progress.fired == 3

    async def test_leaders_in_several_places_fire_once(self, storage: Storage, clock: FakeClock) -> None:
        if not storage.capabilities.shared:
            pytest.skip("needs the capability: shared")
        places = [storage, *[await self.make(clock) for _ in range(3)]]
        for place in places[1:]:
            await place.open()
        await plan(storage, clock, misfire="catch_up")
        for _ in range(5):
            clock.advance(3 * HOUR)
            sent = await wish(storage)
            fired = await asyncio.gather(*(place.fire(sent) for place in places for _ in range(2)))
            assert sum(len(each.jobs) for each in fired if not each.repeated) == 3
            assert {each.outcome for each in fired} == {"fired"}
        assert len(await ids(storage)) == 15
        assert (await scheduled(storage)).progress.fired == 15
        for place in places[1:]:
            await place.close()

    async def test_a_time_that_is_recorded_is_never_fired_again(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock)
        clock.advance(HOUR)
        fired = await shoot(storage)
        # Somebody sets the clock back, and an operator resumes: the cursor goes back with it.
        clock.step_wall(-HOUR)
        assert await change(storage, scheduling.resume(await scheduled(storage), clock.now()))
        clock.step_wall(HOUR)
        again = await shoot(storage)
        assert again.jobs == ()
        assert await ids(storage) == [*fired.jobs]
        progress = (await scheduled(storage)).progress
        assert (progress.fired, progress.cursor) == (1, only(await storage.fires("hourly")).fire_at)

    async def test_a_fire_decided_from_an_older_version_is_stale(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock)
        clock.advance(HOUR)
        sent = await wish(storage)
        assert await change(storage, scheduling.edit(await scheduled(storage), {"priority": 1}, clock.now()))
        assert (await storage.fire(sent)).outcome == "stale"
        assert await ids(storage) == []
        assert (await shoot(storage)).outcome == "fired"

    async def test_pause_and_removal_are_checked_inside_the_fire(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock)
        clock.advance(HOUR)
        sent = await wish(storage)
        assert await change(storage, scheduling.pause(await scheduled(storage), clock.now()))
        paused = await scheduled(storage)
        assert (await storage.fire(msgspec.structs.replace(sent, version=paused.version))).outcome == "stale"
        assert await change(storage, scheduling.remove(paused, clock.now()))
        removed = await scheduled(storage)
        manual = firing.fire_now(removed, clock.now(), an_id())
        assert (await storage.fire(manual)).outcome == "stale"
        assert (await storage.fire(firing.failed(removed, "no"))).outcome == "stale"
        unknown = msgspec.structs.replace(sent, name="unknown")
        assert (await storage.fire(unknown)).outcome == "stale"
        assert await ids(storage) == []
        assert (await scheduled(storage)).progress == paused.progress

    async def test_several_times_are_fired_oldest_first(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock, misfire="catch_up", catch_up=3)
        clock.advance(5 * HOUR)
        fired = await shoot(storage)
        assert len(fired.jobs) == 3
        records = await storage.fires("hourly")
        assert [record.job for record in reversed(records)] == [*fired.jobs]
        assert [one.fire_at - other.fire_at for one, other in pairwise(records)] == [HOUR] * 2
        progress = (await scheduled(storage)).progress
        assert (progress.fired, progress.missed) == (3, 2)
        assert await storage.fires("hourly", limit=1) == records[:1]

    async def test_missed_times_alone_move_the_cursor(self, storage: Storage, clock: FakeClock) -> None:
        first = await plan(storage, clock, misfire="skip")
        clock.advance(HOUR + 600 - clock.now() % HOUR)
        sent = await wish(storage)
        assert not sent.shots
        assert (await storage.fire(sent)).outcome == "skipped"
        progress = (await scheduled(storage)).progress
        assert (progress.missed, progress.cursor > first.progress.cursor) == (1, True)
        assert await ids(storage) == []

    async def test_overlap_is_skipped_while_a_job_of_it_lives(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock, overlap="skip")
        clock.advance(HOUR)
        assert (await shoot(storage)).outcome == "fired"
        clock.advance(HOUR)
        sent = await wish(storage)
        skipped = await storage.fire(sent)
        assert (skipped.outcome, skipped.jobs) == ("skipped", ())
        assert await storage.fire(sent) == msgspec.structs.replace(skipped, repeated=True)
        progress = (await scheduled(storage)).progress
        assert (progress.fired, progress.skipped, progress.cursor) == (1, 1, sent.to)
        newest, oldest = await storage.fires("hourly")
        assert (newest.outcome, newest.job, oldest.outcome) == ("skipped", None, "fired")
        await end(storage, await take_one(storage, await a_live_pod(storage)), Succeeded(None))
        clock.advance(HOUR)
        assert (await shoot(storage)).outcome == "fired"

    async def test_a_fire_by_hand_ignores_pause_and_overlap(self, storage: Storage, clock: FakeClock) -> None:
        first = await plan(storage, clock, overlap="skip")
        clock.advance(HOUR)
        assert (await shoot(storage)).outcome == "fired"
        assert await change(storage, scheduling.pause(await scheduled(storage), clock.now()))
        paused = await scheduled(storage)
        sent = firing.fire_now(paused, clock.now(), an_id())
        fired = await storage.fire(sent)
        assert (fired.outcome, fired.jobs) == ("fired", (sent.shots[0].job.id,))
        assert await storage.fire(sent) == msgspec.structs.replace(fired, repeated=True)
        other = await storage.fire(firing.fire_now(paused, clock.now(), an_id()))
        assert other.outcome == "fired"
        assert len(await ids(storage)) == 3
        after = await scheduled(storage)
        assert after.progress.cursor == paused.progress.cursor > first.progress.cursor
        assert after.progress.fired == 3
        assert sorted(record.manual for record in await storage.fires("hourly")) == [False, True, True]

    async def test_an_error_is_noted_and_a_fire_clears_it(self, storage: Storage, clock: FakeClock) -> None:
        first = await plan(storage, clock)
        assert (await storage.fire(firing.failed(first, "no such zone"))).outcome == "noted"
        progress = (await scheduled(storage)).progress
        assert (progress.errors, progress.last_error, progress.cursor) == (1, "no such zone", first.progress.cursor)
        clock.advance(HOUR)
        await shoot(storage)
        progress = (await scheduled(storage)).progress
        assert (progress.errors, progress.last_error) == (1, None)

    async def test_a_unique_key_holds_for_fires_too(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock, unique=UniqueClaim("one"))
        clock.advance(HOUR)
        first = await shoot(storage)
        clock.advance(HOUR)
        second = await shoot(storage)
        assert second.jobs == first.jobs
        assert await ids(storage) == [*first.jobs]
        # By hand too, and though all of it happens at one instant.
        for _ in range(2):
            again = await storage.fire(firing.fire_now(await scheduled(storage), clock.now(), an_id()))
            assert again.jobs == first.jobs

    async def test_an_edit_brings_its_line_to_the_audit(self, storage: Storage, clock: FakeClock) -> None:
        schedule = await plan(storage, clock)
        paused = scheduling.pause(schedule, clock.now(), by="ann")
        line, late = (AuditLine(id=an_id(), act="schedules.pause", subject="hourly", by="ann") for _ in range(2))
        for _ in range(2):
            assert await storage.save_schedule(paused.schedule, paused.expected, line=line)
        other = scheduling.remove(schedule, clock.now())
        assert not await storage.save_schedule(other.schedule, other.expected, line=late)
        assert [each.id for each in await storage.audit()] == [line.id]

    async def test_a_fire_wakes_its_queue(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock, queue="mail")
        clock.advance(HOUR)
        sent = await wish(storage)
        ear = Ear(storage)
        await storage.fire(sent)
        assert await ear.hears_of("mail")
        ear.stop()

    async def test_jitter_spreads_the_jobs_and_not_the_fires(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock, jitter=600.0)
        clock.advance(HOUR - clock.now() % HOUR)
        job = await look(storage, only((await shoot(storage)).jobs))
        assert clock.now() <= job.run_at <= clock.now() + 600
        assert only(await storage.fires("hourly")).fire_at == clock.now()

    async def test_old_records_are_forgotten(self, storage: Storage, clock: FakeClock) -> None:
        await plan(storage, clock, expression="* * * * *", misfire="catch_up")
        for _ in range(3):
            clock.advance(600 * 60)
            assert len((await shoot(storage)).jobs) == 600
        kept = await storage.fires("hourly", limit=5000)
        assert len(kept) == firing.RECORDS_KEPT
        assert (await scheduled(storage)).progress.fired == 1800
