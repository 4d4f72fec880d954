"""Schedules as an application declares them and an operator changes them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from treadle import App, ConfigError, Conflict, Context, JobNotFound, Registry, Retry, ScheduleNotFound
from treadle.config import Timing
from treadle.runtime.services.cron import Cron
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio
HOUR = 3600.0
START = datetime(2026, 6, 1, tzinfo=UTC)  # a Monday


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TREADLE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START.timestamp())


@pytest.fixture
async def app(clock: FakeClock) -> AsyncIterator[App]:
    app = App(storage=MemoryStorage(clock), router={"shop.": "shop"})

    @app.cron("0 9 * * MON-FRI", tz="Europe/Berlin", name="mornings")
    @app.task(name="shop.report", retry=Retry(max_attempts=3), timeout="30s", tags=["r"])
    async def report(day: str = "today") -> str:
        return day

    async with app:
        yield app


async def tick(app: App) -> None:
    await Cron(app.storage, app.declared_schedules).run_once()


# Declared ------------------------------------------------------------------------------------------------------------


def test_a_declared_task_stays_a_task_and_takes_its_own_options() -> None:
    app = App("memory://")

    @app.every("90s", first="now", jitter="5s", misfire="skip")
    @app.cron("*/5 * * * * *", name="often", args={"n": 5}, queue="other", priority=7, overlap="skip", paused=True)
    @app.task(name="work", queue="mail", retry=4, timeout="1m", unique=True, tags=["t"])
    def work(n: int = 1) -> int:
        return n

    assert work(3) == 3
    found = app.declared_schedules()
    assert list(found) == ["often", "work"]
    plan = found["often"].plan
    assert (plan.task, plan.queue, plan.args, plan.priority) == ("work", "other", '{"n":5}', 7)
    assert (plan.max_attempts, plan.timeout, plan.tags, plan.overlap, plan.paused) == (4, 60.0, ("t",), "skip", True)
    assert plan.unique is not None
    assert found["work"].at_once
    plan = found["work"].plan
    assert (plan.expression, plan.queue, plan.jitter, plan.misfire) == ("every 1m30s", "mail", 5.0, "skip")


def test_the_router_of_the_app_chooses_the_queue_of_a_library_s_schedule() -> None:
    library = Registry()
    app = App("memory://", router={"lib.": "slow"})

    @library.every("1h")
    @library.task(name="lib.early")
    async def early() -> None: ...

    app.include(library)

    @library.every("1h")
    @library.task(name="lib.late")
    async def late() -> None: ...

    assert {name: each.plan.queue for name, each in app.declared_schedules().items()} == {
        "lib.early": "slow",
        "lib.late": "slow",
    }


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda app: app.cron("* * * *"), "schedule work: .* 4 fields"),
        (lambda app: app.cron("* * * * * * *"), "7 fields"),
        (lambda app: app.cron("0 0 30 2 *"), "no day 30 in month 2"),
        (lambda app: app.cron("@hourly", tz="Europe/Berln"), "did you mean Europe/Berlin"),
        (lambda app: app.cron("@hourly", args={"m": 1}), "no parameter 'm'"),
        (lambda app: app.cron("@hourly", args={"n": object()}), "n: "),
        (lambda app: app.cron("@hourly", misfire="never"), "misfire must be one of"),
        (lambda app: app.cron("@hourly", overlap="maybe"), "overlap must be one of"),
        (lambda app: app.cron("@hourly", catch_up=0), "catch_up"),
        (lambda app: app.cron("@hourly", jitter="-1s"), "jitter"),
        (lambda app: app.cron("@hourly", name="no name"), "schedule name"),
        (lambda app: app.cron("@hourly", queue="no queue"), "queue name"),
        (lambda app: app.every("0s"), "@every: an interval must be 1s or longer"),
        (lambda app: app.every("often"), "@every: interval 'often' is not a duration"),
        (lambda app: app.every("1h", first="later"), 'first must be "now"'),
    ],
)
def test_what_is_wrong_is_said_where_it_is_declared(declare: Any, problem: str) -> None:
    app = App("memory://")

    @app.task(name="work")
    async def work(n: int = 1) -> None: ...

    with pytest.raises(ConfigError, match=problem):
        declare(app)(work)
    assert app.declared_schedules() == {}


def test_a_missing_argument_an_unknown_option_and_the_wrong_order() -> None:
    app = App("memory://")

    @app.task(name="work")
    async def work(n: int) -> None: ...

    with pytest.raises(ConfigError, match="missing a required argument: 'n'"):
        app.cron("@hourly")(work)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'jiter'"):
        app.cron("@hourly", jiter=1)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="stand above @task"):
        app.cron("@hourly")(lambda: None)  # type: ignore[arg-type]


def test_a_second_schedule_of_a_task_needs_a_name() -> None:
    app, library = App("memory://"), Registry()

    @app.task(name="work")
    async def work() -> None: ...

    @library.every("1h", name="work")
    @library.task(name="lib.work")
    async def other() -> None: ...

    app.cron("@hourly")(work)
    with pytest.raises(ConfigError, match="work has a schedule of the name work already: give this one a name="):
        app.cron("@daily")(work)
    with pytest.raises(ConfigError, match="already"):
        app.include(library)
    assert app.find("lib.work") is None
    app.cron("@daily", name="work-daily")(work)
    assert list(app.declared_schedules()) == ["work", "work-daily"]


# Operated ------------------------------------------------------------------------------------------------------------


async def test_list_get_and_next(app: App) -> None:
    assert await app.schedules.list() == []
    await tick(app)
    (view,) = await app.schedules.list()
    assert (view.name, view.task, view.queue) == ("mornings", "shop.report", "shop")
    assert view.words == "At 09:00 on Monday through Friday, Europe/Berlin"
    assert (view.next_fire, view.declared, view.undeclared) == (START + timedelta(hours=7), True, True)
    assert await app.schedules.get("mornings") == view
    coming = await app.schedules.next("mornings")
    assert len(coming) == 10
    assert coming[4:6] == [START + timedelta(days=4, hours=7), START + timedelta(days=7, hours=7)]
    with pytest.raises(ScheduleNotFound, match='no schedule morning; did you mean "mornings"'):
        await app.schedules.get("morning")
    for wrong in (0, 1001):
        with pytest.raises(ValueError, match="from 1 to"):
            await app.schedules.next("mornings", wrong)
        with pytest.raises(ValueError, match="from 1 to"):
            await app.schedules.fires("mornings", wrong)


async def test_the_job_has_the_task_s_own_options(app: App, clock: FakeClock) -> None:
    await tick(app)
    clock.advance(8 * HOUR)
    await tick(app)
    (fire,) = await app.schedules.fires("mornings")
    job = await app.jobs.get(fire.job or "")
    assert (job.queue, job.max_attempts, job.timeout, job.tags) == ("shop", 3, 30.0, ("r",))
    assert job.reason == "schedule mornings"
    assert job.meta == {"treadle:schedule": "mornings", "treadle:fire_at": "2026-06-01T07:00:00Z"}
    assert (await app.jobs.find("schedule:mornings")).jobs[0].id == job.id


async def test_add_edit_and_remove(app: App, clock: FakeClock) -> None:
    view = await app.schedules.add("mine", "every 10m", "shop.report", {"day": "x"}, by="ada", overlap="skip")
    assert (view.queue, view.args, view.declared, view.edited_by, view.version) == (
        "shop",
        {"day": "x"},
        False,
        "ada",
        1,
    )
    with pytest.raises(Conflict, match="already"):
        await app.schedules.add("mine", "@hourly", "shop.report")
    clock.advance(60)
    view = await app.schedules.edit("mine", expression="every 1h", args={"day": "y"}, jitter="10s", misfire="skip")
    assert (view.args, view.jitter, view.misfire, view.version) == ({"day": "y"}, 10.0, "skip", 2)
    assert view.next_fire == START + timedelta(seconds=60 + HOUR)
    removed = await app.schedules.remove("mine", by="ada")
    assert removed.removed_at is not None
    assert await app.schedules.list() == []
    assert [each.name for each in await app.schedules.list(removed=True)] == ["mine"]
    assert await app.schedules.next("mine") == []
    for act in (app.schedules.pause, app.schedules.resume, app.schedules.remove, app.schedules.fire):
        with pytest.raises(Conflict, match="was removed"):
            await act("mine")
    anew = await app.schedules.add("mine", "@daily", "elsewhere.task", {"any": 1})
    assert (anew.queue, anew.removed_at, anew.version) == ("default", None, 4)


async def test_put_makes_changes_or_leaves_a_schedule(app: App, clock: FakeClock) -> None:
    """A program that has its schedules in a table of its own had to look first, and to add or to edit."""

    async def put(expression: str = "every 10m", **given: Any) -> Any:
        return await app.schedules.put("mine", expression, "shop.report", {"day": "x"}, by="ada", **given)

    made = await put(first="now")
    assert (made.version, made.queue) == (1, "shop")
    await tick(app)
    assert [job.queue for job in (await app.jobs.find("schedule:mine")).jobs] == ["shop"]
    clock.advance(60)
    again = await put()
    assert (again.version, again.next_fire) == (1, START + timedelta(minutes=10))
    await app.schedules.pause("mine", by="bo")
    changed = await put(priority=5)
    assert (changed.version, changed.priority, changed.paused, changed.next_fire) == (3, 5, True, None)
    resumed = await put(priority=5, paused=False)
    assert (resumed.paused, resumed.next_fire) == (False, START + timedelta(minutes=10))
    await app.schedules.remove("mine")
    assert (await put("@daily")).removed_at is None
    with pytest.raises(ValueError, match="intervals"):
        await put("@daily", first="now")
    assert len([line for line in await app.audit.list() if line.act == "schedules.put"]) == 4


async def test_what_an_operator_asks_for_is_checked(app: App) -> None:
    await tick(app)
    add, edit = app.schedules.add, app.schedules.edit
    for wrong, problem in (
        (add("no name", "@hourly", "shop.report"), "schedule name"),
        (add("x", "@hourly", "no task"), "task name"),
        (add("x", "* * *", "shop.report"), "3 fields"),
        (add("x", "@hourly", "shop.report", tz="Mars"), "no time zone"),
        (add("x", "@hourly", "shop.report", misfire="x"), "misfire"),  # type: ignore[arg-type]
        (edit("mornings", expression="0 0 31 6 *"), "no day 31"),
        (edit("mornings"), "nothing to change"),
        (app.schedules.reset("x"), "no schedule x"),
    ):
        with pytest.raises((ValueError, ScheduleNotFound), match=problem):
            await wrong
    with pytest.raises(TypeError, match="no parameter 'month'"):
        await add("x", "@hourly", "shop.report", {"month": 1})
    with pytest.raises(TypeError, match="no parameter 'month'"):
        await edit("mornings", args={"month": 1})
    assert [each.name for each in await app.schedules.list()] == ["mornings"]


async def test_an_edit_of_what_has_changed_meanwhile_is_a_conflict(app: App) -> None:
    await tick(app)
    view = await app.schedules.get("mornings")
    await app.schedules.edit("mornings", priority=1, version=view.version)
    with pytest.raises(Conflict, match="has changed meanwhile \\(version 2\\)"):
        await app.schedules.edit("mornings", priority=2, version=view.version)
    for act in (app.schedules.pause, app.schedules.resume, app.schedules.remove, app.schedules.reset):
        with pytest.raises(Conflict, match="meanwhile"):
            await act("mornings", version=view.version)
    assert (await app.schedules.edit("mornings", priority=3)).priority == 3


async def test_two_operators_at_once_both_have_their_way(app: App) -> None:
    await tick(app)
    await asyncio.gather(app.schedules.edit("mornings", priority=3), app.schedules.edit("mornings", overlap="skip"))
    view = await app.schedules.get("mornings")
    assert (view.priority, view.overlap, set(view.edited)) == (3, "skip", {"priority", "overlap"})


async def test_pause_resume_and_reset(app: App, clock: FakeClock) -> None:
    await tick(app)
    paused = await app.schedules.pause("mornings", reason="holidays", by="ada")
    assert (paused.paused, paused.paused_by, paused.pause_reason, paused.next_fire) == (True, "ada", "holidays", None)
    clock.advance(3 * 24 * HOUR)
    await tick(app)
    resumed = await app.schedules.resume("mornings")
    await tick(app)
    assert (resumed.paused, resumed.missed) == (False, 0)
    assert await app.schedules.fires("mornings") == []
    await app.schedules.edit("mornings", expression="@hourly")
    await app.schedules.remove("mornings")
    await tick(app)
    assert await app.schedules.list() == []
    back = await app.schedules.reset("mornings")
    assert (back.expression, back.edited, back.removed_at) == ("0 9 * * MON-FRI", (), None)


async def test_what_operators_do_is_in_the_audit(app: App, clock: FakeClock) -> None:
    """In the same commit as the edit; what was refused leaves nothing."""
    name = (await app.schedules.add("extra", "every 10m", "t", by="ann")).name
    for act in (
        app.schedules.edit(name, priority=3, args={"secret": 1}, by="ben"),
        app.schedules.pause(name, reason="why", by="cyd"),
        app.schedules.remove(name, by="dan"),
    ):
        clock.advance(1)
        await act
    with pytest.raises(Conflict):
        await app.schedules.resume(name, by="eve")
    lines = [line for line in await app.audit.list() if line.subject == name]
    assert [(line.act, line.by, line.detail, line.reason) for line in reversed(lines)] == [
        ("schedules.add", "ann", "every 10m t", None),
        ("schedules.set", "ben", "priority, args", None),
        ("schedules.pause", "cyd", "", "why"),
        ("schedules.remove", "dan", "", None),
    ]


async def test_fire_now_leaves_the_clock(app: App) -> None:
    await tick(app)
    before = await app.schedules.pause("mornings")
    handle = await app.schedules.fire("mornings")
    job = await handle.status()
    assert (job.task, job.queue, handle.outcome) == ("shop.report", "shop", "inserted")
    assert job.meta["treadle:manual"] is True
    after = await app.schedules.get("mornings")
    assert (after.fired, after.version, after.paused) == (1, before.version, True)
    (fire,) = await app.schedules.fires("mornings")
    assert (fire.manual, fire.job) == (True, handle.id)


def test_sync_twins(clock: FakeClock) -> None:
    app = App(storage=MemoryStorage(clock))
    face = app.schedules
    face.add_sync("s", "@hourly", "some.task")
    assert face.edit_sync("s", priority=2).priority == 2
    assert face.pause_sync("s", reason="x").paused
    assert not face.resume_sync("s").paused
    assert len(face.next_sync("s", 3)) == 3
    job = face.fire_sync("s").id
    assert [fire.job for fire in face.fires_sync("s")] == [job]
    assert face.remove_sync("s").removed_at is not None
    assert face.list_sync() == []
    assert face.get_sync("s").name == "s"
    with pytest.raises(ValueError, match="declared by no code"):
        face.reset_sync("s")
    app.close_sync()


# In a pod ------------------------------------------------------------------------------------------------------------


async def test_the_leader_fires_and_the_task_sees_schedule_and_time() -> None:
    app = App("memory://", timing=Timing(leader_every=0.05, start_jitter=0.0))
    seen: asyncio.Queue[tuple[str | None, datetime | None]] = asyncio.Queue()

    @app.every("1h", first="now")
    @app.task(name="work")
    async def work(ctx: Context) -> None:
        seen.put_nowait((ctx.schedule, ctx.fire_at))

    before = datetime.now(UTC)
    async with app.worker(), asyncio.timeout(10):
        name, fire_at = await seen.get()
        assert name == "work"
        assert fire_at is not None and timedelta(0) <= fire_at - before < timedelta(seconds=10)
        assert not (await app.schedules.get("work")).undeclared
        await work.enqueue()
        assert await seen.get() == (None, None)


@pytest.mark.parametrize("switch", ["cron", "services"])
async def test_the_kill_switch(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_DISABLE", switch)
    app = App("memory://", timing=Timing(leader_every=0.01, start_jitter=0.0))

    @app.every("1h", first="now")
    @app.task
    async def work() -> None: ...

    async with app.worker() as pod:
        names = [each.service.name for each in pod.rounds]
        assert ("cron" in names, "leader" in names) == (switch == "services", switch == "cron")
        with pytest.raises(JobNotFound):
            await app.jobs.get("00000000-0000-7000-8000-000000000000")
