"""The Cron service, without its loop: many of them on one storage, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from treadle.core import cron as lines
from treadle.core import firing
from treadle.core import schedule as scheduling
from treadle.core.audit import AuditLine
from treadle.core.errors import StorageTimeout, StorageUnavailable
from treadle.core.firing import Fire, Fired
from treadle.core.schedule import Declared, Plan, Schedule
from treadle.runtime.services.cron import SYNC_EVERY, TICK, Cron
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio
HOUR = 3600.0
DAY = 86400.0


def declared(at_once: bool = False, **fields: Any) -> Declared:
    plan = Plan(**{"expression": "0 * * * *", "task": "work", "queue": "default", **fields})
    return Declared(plan=plan, at_once=at_once)


class Place:
    """A storage with its clock, and as many Crons on it as a test wants."""

    def __init__(self, storage: type[MemoryStorage] = MemoryStorage) -> None:
        self.clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
        self.storage = storage(self.clock)

    def cron(self, code: Mapping[str, Declared] | None = None, term: Callable[[], int] = lambda: 1) -> Cron:
        return Cron(self.storage, lambda: code or {}, term=term, steady=self.clock.steady)

    async def schedule(self, name: str) -> Schedule:
        _, found = await self.storage.schedules()
        return {each.name: each for each in found}[name]

    async def jobs(self, name: str) -> list[str]:
        return [record.job for record in reversed(await self.storage.fires(name, 10_000)) if record.job]


@pytest.fixture
def place() -> Place:
    return Place()


# Sync ----------------------------------------------------------------------------------------------------------------


async def test_the_first_pass_writes_what_code_declares_and_fires_nothing(place: Place) -> None:
    await place.cron({"hourly": declared(), "daily": declared(expression="@daily")}).run_once()
    _, found = await place.storage.schedules()
    assert [each.name for each in found] == ["daily", "hourly"]
    assert await place.jobs("hourly") == []


async def test_a_sync_comes_with_every_term_and_every_minute(place: Place) -> None:
    code = {"hourly": declared()}
    term = 1
    cron = place.cron(code, term=lambda: term)
    await cron.run_once()

    async def priority_after(seconds: float) -> int:
        code["hourly"] = declared(priority=code["hourly"].plan.priority + 1)
        place.clock.advance(seconds)
        await cron.run_once()
        return (await place.schedule("hourly")).plan.priority

    assert await priority_after(1) == 0
    assert await priority_after(SYNC_EVERY) == 2
    term = 2
    assert await priority_after(1) == 3


async def test_an_operators_edit_survives_a_sync_and_so_does_a_removal(place: Place) -> None:
    code = {"hourly": declared(), "daily": declared(expression="@daily")}
    await place.cron(code).run_once()
    now = place.clock.now()
    for edit in (
        scheduling.edit(await place.schedule("hourly"), {"expression": "30 * * * *"}, now),
        scheduling.remove(await place.schedule("daily"), now),
    ):
        assert await place.storage.save_schedule(edit.schedule, edit.expected, cursor=edit.cursor)
    deploy = {name: declared(expression="15 * * * *", priority=4) for name in code}
    await place.cron(deploy).run_once()
    hourly = await place.schedule("hourly")
    assert (hourly.plan.expression, hourly.plan.priority) == ("30 * * * *", 4)
    assert (await place.schedule("daily")).removed
    place.clock.advance(2 * DAY)
    await place.cron(deploy).run_once()
    assert len(await place.jobs("hourly")) == 1
    assert await place.jobs("daily") == []


async def test_code_removes_nothing_that_others_declare(place: Place) -> None:
    await place.cron({"theirs": declared()}).run_once()
    ours = place.cron({"ours": declared()})
    await ours.run_once()
    place.clock.advance(HOUR)
    await ours.run_once()
    assert len(await place.jobs("theirs")) == len(await place.jobs("ours")) == 1


async def test_an_interval_can_fire_at_once(place: Place) -> None:
    cron = place.cron(
        {"often": declared(expression="every 10m", at_once=True), "later": declared(expression="every 10m")}
    )
    await cron.run_once()
    assert len(await place.jobs("often")) == 1
    assert await place.jobs("later") == []
    place.clock.advance(600)
    await cron.run_once()
    assert len(await place.jobs("often")) == 2
    assert len(await place.jobs("later")) == 1


# Fires ---------------------------------------------------------------------------------------------------------------


async def test_what_is_missed_follows_the_policy(place: Place) -> None:
    code = {
        "coalesce": declared(expression="* * * * *"),
        "skip": declared(expression="* * * * *", misfire="skip"),
        "catch_up": declared(expression="* * * * *", misfire="catch_up"),
        "a_few": declared(expression="* * * * *", misfire="catch_up", catch_up=5),
    }
    cron = place.cron(code)
    await cron.run_once()
    place.clock.advance(3 * DAY + 90)  # 4,321 fire times
    await cron.run_once()
    fired = {name: len(await place.jobs(name)) for name in code}
    assert fired == {"coalesce": 1, "skip": 1, "catch_up": 1000, "a_few": 5}
    for name, count in fired.items():
        progress = (await place.schedule(name)).progress
        assert (progress.fired, progress.missed) == (count, 4321 - count), name
    assert cron.counts["missed"] == 4 * 4321 - sum(fired.values())


async def test_the_clock_set_back_fires_nothing_again(place: Place) -> None:
    cron = place.cron({"hourly": declared()})
    await cron.run_once()
    place.clock.advance(2 * HOUR)
    await cron.run_once()
    place.clock.step_wall(-HOUR)
    for _ in range(6):
        await cron.run_once()
        place.clock.step_wall(HOUR / 4)
    assert len(await place.jobs("hourly")) == 1
    place.clock.step_wall(HOUR)
    await cron.run_once()
    assert len(await place.jobs("hourly")) == 2


async def test_time_spent_paused_is_not_missed(place: Place) -> None:
    cron = place.cron({"hourly": declared(misfire="catch_up")})
    await cron.run_once()
    paused = scheduling.pause(await place.schedule("hourly"), place.clock.now())
    assert await place.storage.save_schedule(paused.schedule, paused.expected)
    place.clock.advance(10 * HOUR)
    await cron.run_once()
    resumed = scheduling.resume(await place.schedule("hourly"), place.clock.now())
    assert await place.storage.save_schedule(resumed.schedule, resumed.expected, cursor=resumed.cursor)
    await cron.run_once()
    assert await place.jobs("hourly") == []
    place.clock.advance(HOUR)
    await cron.run_once()
    progress = (await place.schedule("hourly")).progress
    assert (progress.fired, progress.missed) == (1, 0)


async def test_a_schedule_that_cannot_be_read_is_flagged_and_the_others_go_on(place: Place) -> None:
    bad = scheduling.add("bad", declared().plan, place.clock.now()).schedule
    broken = replace(bad, plan=replace(bad.plan, expression="from a newer version"))
    assert await place.storage.save_schedule(broken, 0)
    cron = place.cron({"good": declared()})
    await cron.run_once()
    place.clock.advance(HOUR)
    for _ in range(5):
        await cron.run_once()
        place.clock.advance(1)
    progress = (await place.schedule("bad")).progress
    assert (progress.errors, progress.cursor) == (2, bad.progress.cursor)  # noted once a minute at most
    assert "fields" in str(progress.last_error)
    assert len(await place.jobs("good")) == 1


class Refuses(MemoryStorage):
    """Will not fire the schedules that a test names."""

    refused: ClassVar[dict[str, Exception]] = {}

    async def fire(self, wish: Fire) -> Fired:
        if wish.error is None and wish.name in self.refused:
            raise self.refused[wish.name]
        return await super().fire(wish)

    async def save_schedule(
        self, schedule: Schedule, expected_version: int, *, cursor: float | None = None, line: AuditLine | None = None
    ) -> bool:
        if schedule.name == "unwritable":
            raise RuntimeError("out of range")
        return await super().save_schedule(schedule, expected_version, cursor=cursor, line=line)


async def test_what_code_declares_badly_stops_nothing_else() -> None:
    place = Place(Refuses)
    await place.cron({"a": declared()}).run_once()
    cron = place.cron({"unwritable": declared(), "b": declared()})
    await cron.run_once()
    _, found = await place.storage.schedules()
    assert [each.name for each in found] == ["a", "b"]

    def no_queue() -> Any:
        raise ValueError("the router chose no queue")

    lost = Cron(place.storage, no_queue, steady=place.clock.steady)
    place.clock.advance(HOUR)
    await lost.run_once()
    assert [len(await place.jobs(name)) for name in "ab"] == [1, 1]
    assert (cron.counts["errors"], lost.counts["errors"]) == (1, 1)


async def test_a_fire_that_fails_leaves_the_cursor_and_is_tried_again() -> None:
    place = Place(Refuses)
    cron = place.cron({"a": declared(), "b": declared()})
    await cron.run_once()
    place.clock.advance(HOUR)
    Refuses.refused = {"a": RuntimeError("the row is odd")}
    await cron.run_once()
    assert (len(await place.jobs("a")), len(await place.jobs("b"))) == (0, 1)
    assert "the row is odd" in str((await place.schedule("a")).progress.last_error)
    Refuses.refused = {}
    await cron.run_once()
    progress = (await place.schedule("a")).progress
    assert (progress.fired, progress.errors, progress.last_error) == (1, 1, None)


async def test_a_storage_that_is_away_is_told_to_the_round_and_the_fires_come_later() -> None:
    place = Place(Refuses)
    cron = place.cron({name: declared() for name in "abc"})
    await cron.run_once()
    place.clock.advance(HOUR)
    Refuses.refused = {"a": StorageTimeout("somebody holds the row")}
    await cron.run_once()  # no error: a round that pauses after it would keep the others from being fired on time
    assert [len(await place.jobs(name)) for name in "abc"] == [0, 1, 1]  # one row that is held holds up no other
    assert cron.counts["errors"] == 1
    assert cron.every == TICK
    place.clock.advance(HOUR)
    Refuses.refused = dict.fromkeys("abc", StorageUnavailable("away"))
    with pytest.raises(StorageUnavailable):
        await cron.run_once()
    Refuses.refused = {}
    await cron.run_once()
    assert [len(await place.jobs(name)) for name in "abc"] == [1, 2, 2]
    assert [(await place.schedule(name)).progress.errors for name in "abc"] == [0, 0, 0]


async def test_it_looks_again_when_the_next_fire_comes_or_after_a_second(place: Place) -> None:
    cron = place.cron({"hourly": declared()})
    assert cron.every == TICK
    await cron.run_once()
    assert cron.every == TICK
    place.clock.advance(HOUR - 0.25)
    await cron.run_once()
    assert cron.every == pytest.approx(0.25, abs=0.01)
    place.clock.advance(0.3)
    assert cron.every < 0.05  # late already
    place.clock.advance(60)
    assert cron.every == TICK  # another pod leads now: nobody asks for more


async def test_an_edit_during_a_tick_makes_its_fire_stale(place: Place) -> None:
    cron = place.cron({"hourly": declared()})
    await cron.run_once()
    place.clock.advance(HOUR)
    schedule = await place.schedule("hourly")
    found = firing.due(schedule, place.clock.now())
    assert found is not None
    edit = scheduling.edit(schedule, {"queue": "other"}, place.clock.now())
    assert await place.storage.save_schedule(edit.schedule, edit.expected, cursor=edit.cursor)
    assert (await place.storage.fire(firing.fire(schedule, found))).outcome == "stale"
    await cron.run_once()
    (job,) = await place.storage.get(await place.jobs("hourly"))
    assert job.queue == "other"


# Five pods, one year -------------------------------------------------------------------------------------------------


class Slow(MemoryStorage):
    """Lets the others in between a question and an answer, loses answers, and is away now and then."""

    chance = random.Random(7)

    async def schedules(self) -> Any:
        answer = await super().schedules()
        await asyncio.sleep(0)
        return answer

    async def fire(self, wish: Fire) -> Fired:
        await asyncio.sleep(0)
        if self.chance.random() < 0.02:
            raise StorageUnavailable("away")
        answer = await super().fire(wish)
        if self.chance.random() < 0.02:
            raise StorageTimeout("the answer was lost")
        return answer


async def test_five_pods_one_year_no_double_and_no_missing_fire() -> None:
    """Every pod believes to lead, some stand still for hours or vanish and come back with nothing in mind."""
    place = Place(Slow)
    chance = random.Random(11)
    code = {
        "hourly": declared(expression="0 * * * *", zone="America/New_York", misfire="catch_up"),
        "berlin": declared(expression="30 2 * * *", zone="Europe/Berlin", misfire="catch_up"),
        "howe": declared(expression="45 1 * * *", zone="Australia/Lord_Howe", misfire="catch_up"),
        "weekdays": declared(expression="0 9 * * MON-FRI", zone="Asia/Kathmandu", misfire="catch_up"),
        "every": declared(expression="every 7h", misfire="catch_up"),
    }
    await place.cron(code).run_once()
    begin = place.clock.now()
    anchors = {name: (await place.schedule(name)).anchor for name in code}
    pods = [place.cron(code) for _ in range(5)]
    away_until = [0.0] * 5
    end = begin + 365 * DAY
    while place.clock.now() < end:
        now = place.clock.now()
        awake = [n for n in range(5) if away_until[n] <= now]
        await asyncio.gather(*(pods[n].run_once() for n in awake), return_exceptions=True)
        for n in awake:
            fate = chance.random()
            if fate < 0.02:
                away_until[n] = now + chance.uniform(0, 12) * HOUR  # stopped, and goes on as if nothing had been
            elif fate < 0.04:
                pods[n] = place.cron(code)  # killed, and started anew
        place.clock.advance(chance.choice([1200.0, 5400.0, 10_800.0]))
    for _ in range(5):  # what was lost at the very end
        await asyncio.gather(*(place.cron(code).run_once() for _ in range(2)), return_exceptions=True)

    jobs = await everything(place.storage)
    for name, each in code.items():
        plan = each.plan
        fires = lines.fires_after(plan.expression, plan.zone, anchors[name], begin)
        expected: list[str] = []
        for at in fires:
            if at > place.clock.now():
                break
            expected.append(firing.iso(at))
        counted = Counter(jobs[name])
        assert max(counted.values()) == 1, name
        assert sorted(counted) == sorted(expected), name
        progress = (await place.schedule(name)).progress
        assert (progress.fired, progress.missed) == (len(expected), 0), name


async def everything(storage: MemoryStorage) -> dict[str, list[str]]:
    """The fire times of all jobs, by schedule."""
    found: dict[str, list[str]] = {}
    for row in storage._rows.values():
        meta = firing.payload.decode_trusted(row.job.meta or "{}")
        found.setdefault(meta["treadle:schedule"], []).append(meta["treadle:fire_at"])
    return found
