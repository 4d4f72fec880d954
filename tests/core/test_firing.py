"""What is due, and what a fire writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.core import firing, ids
from treadle.core import schedule as scheduling
from treadle.core.firing import Due, Fire, FireRecord, Settled
from treadle.core.schedule import Plan, Progress, Schedule

HOUR = 3600.0
NOW = 1_780_002_000.0 - 1_780_002_000.0 % HOUR  # on the hour


def a_schedule(**fields: Any) -> Schedule:
    plan = Plan(**{"expression": "0 * * * *", "task": "work", "queue": "default", **fields})
    return scheduling.add("hourly", plan, NOW).schedule


def due(after: float, **fields: Any) -> Due | None:
    return firing.due(a_schedule(**fields), NOW + after)


# Due -----------------------------------------------------------------------------------------------------------------


def test_nothing_is_due_before_its_time() -> None:
    assert due(HOUR - 0.001) is None
    assert due(-10 * HOUR) is None  # somebody set the clock back


def test_the_time_itself_is_due() -> None:
    assert due(HOUR) == Due(times=(NOW + HOUR,), missed=0, cursor=NOW + HOUR)


def test_coalesce_fires_the_newest_and_counts_the_rest() -> None:
    assert due(5.5 * HOUR) == Due(times=(NOW + 5 * HOUR,), missed=4, cursor=NOW + 5 * HOUR)


def test_skip_drops_what_is_late() -> None:
    assert due(HOUR + 60, misfire="skip") == Due(times=(NOW + HOUR,), missed=0, cursor=NOW + HOUR)
    assert due(HOUR + 61, misfire="skip") == Due(times=(), missed=1, cursor=NOW + HOUR)
    assert due(3 * HOUR + 5, misfire="skip") == Due(times=(NOW + 3 * HOUR,), missed=2, cursor=NOW + 3 * HOUR)
    each_second = due(90, misfire="skip", expression="* * * * * *")
    assert each_second == Due(times=tuple(NOW + n for n in range(30, 91)), missed=29, cursor=NOW + 90)
    assert due(0, misfire="skip") is None


def test_catch_up_fires_the_newest_so_many_oldest_first() -> None:
    all_of_them = due(3 * HOUR, misfire="catch_up")
    assert all_of_them == Due(times=tuple(NOW + n * HOUR for n in (1, 2, 3)), missed=0, cursor=NOW + 3 * HOUR)
    two = due(3 * HOUR, misfire="catch_up", catch_up=2)
    assert two == Due(times=(NOW + 2 * HOUR, NOW + 3 * HOUR), missed=1, cursor=NOW + 3 * HOUR)


def test_a_month_of_seconds_takes_a_thousand_steps_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    month = 30 * 86400
    steps = 0
    walk = firing.cron.fires_until

    def counted(*args: Any) -> Any:
        nonlocal steps
        for each in walk(*args):
            steps += 1
            yield each

    monkeypatch.setattr(firing.cron, "fires_until", counted)
    found = due(month, expression="* * * * * *", misfire="catch_up")
    assert found is not None
    assert (len(found.times), found.missed, found.cursor) == (1000, month - 1000, NOW + month)
    assert found.times[0] == NOW + month - 999
    assert steps <= 1001
    coalesced = due(month, expression="* * * * * *")
    assert coalesced is not None
    assert (coalesced.times, coalesced.missed) == ((NOW + month,), month - 1)


def test_paused_and_removed_ones_are_never_due() -> None:
    paused = scheduling.pause(a_schedule(), NOW).schedule
    removed = scheduling.remove(a_schedule(), NOW).schedule
    for schedule in (paused, removed):
        assert firing.due(schedule, NOW + 9 * HOUR) is None
        assert firing.next_fire(schedule) is None
        assert firing.late(schedule, NOW + 9 * HOUR) == 0.0
    assert firing.next_fire(a_schedule()) == NOW + HOUR


def test_a_schedule_is_late_from_its_next_time_on() -> None:
    assert firing.late(a_schedule(), NOW + HOUR - 1) == 0.0
    assert firing.late(a_schedule(), NOW + HOUR + 5) == 5.0


def test_nothing_is_written_over_a_row_that_cannot_be_read() -> None:
    """Its cursor may be all that is left of it: the version that can read it goes on from there."""
    unread = scheduling.of_text("nightly", 7, "{", '{"cursor":5}')
    for wish in (firing.failed(unread, "no"), firing.Fire(name="nightly", version=7)):
        assert firing.settle(unread, wish, (), {}) == firing.Settled(outcome="stale")


def test_an_expression_that_cannot_be_read_is_an_error() -> None:
    schedule = a_schedule()
    broken = replace(schedule, plan=replace(schedule.plan, zone="Gone/Zone"))
    with pytest.raises(ValueError, match="no time zone"):
        firing.due(broken, NOW + HOUR)


# Jobs ----------------------------------------------------------------------------------------------------------------


def test_the_job_says_which_schedule_and_which_time() -> None:
    plan = a_schedule(args='{"n":1}', priority=2, timeout=3.0, max_attempts=4, tags=("t",)).plan
    job = firing.job_of("hourly", plan, NOW + HOUR)
    assert (job.task, job.queue, job.args, job.priority) == ("work", "default", '{"n":1}', 2)
    assert (job.timeout, job.max_attempts, job.tags, job.run_at) == (3.0, 4, ("t",), None)
    assert job.reason == "schedule hourly"
    assert json.loads(job.meta or "") == {
        "treadle:schedule": "hourly",
        "treadle:fire_at": firing.iso(NOW + HOUR),
    }
    assert firing.iso(NOW).endswith(":00:00Z")


def test_its_id_follows_from_name_and_time() -> None:
    plan = a_schedule().plan
    one = firing.job_of("hourly", plan, NOW)
    assert ids.is_id(one.id)
    assert ids.unix_ms_of(one.id) == NOW * 1000
    assert firing.job_of("hourly", replace(plan, priority=9), NOW).id == one.id
    assert len({one.id, firing.job_of("hourly", plan, NOW + 1).id, firing.job_of("other", plan, NOW).id}) == 3


def test_jitter_is_spread_and_does_not_change() -> None:
    plan = a_schedule(jitter=100.0).plan
    spread = [(firing.job_of("x", plan, NOW + n).run_at or 0.0) - NOW - n for n in range(200)]
    assert all(0 <= each <= 100 for each in spread)
    assert min(spread) < 10 and max(spread) > 90
    assert firing.job_of("x", plan, NOW).run_at == firing.job_of("x", plan, NOW).run_at
    assert firing.job_of("x", plan, NOW, manual="id").run_at is None


def test_a_fire_by_hand_is_marked() -> None:
    wish = firing.fire_now(a_schedule(jitter=5.0), NOW + 1.5, "an-id")
    assert (wish.manual, wish.shots[0].fire_at, wish.shots[0].job.id) == (True, NOW + 1.5, "an-id")
    assert json.loads(wish.shots[0].job.meta or "")["treadle:manual"] is True


# Settling ------------------------------------------------------------------------------------------------------------


def a_fire(schedule: Schedule, after: float = HOUR) -> Fire:
    found = firing.due(schedule, NOW + after)
    assert found is not None
    return firing.fire(schedule, found)


def settle(row: Schedule | None, wish: Fire, live: tuple[str, ...] = (), known: tuple[FireRecord, ...] = ()) -> Settled:
    return firing.settle(row, wish, live, {record.key: record for record in known})


def record(at: float, job: str | None = "job", *, manual: bool = False) -> FireRecord:
    return FireRecord(fire_at=at, at=at, outcome="fired" if job else "skipped", job=job, manual=manual)


def test_a_fire_that_nothing_stands_against() -> None:
    row = a_schedule(misfire="catch_up")
    wish = a_fire(row, 2 * HOUR)
    settled = settle(row, wish)
    assert (settled.outcome, settled.shots, settled.skipped, settled.final) == ("fired", wish.shots, (), False)
    records, progress = firing.written(row, wish, settled, ("a", "b"), NOW + 9000)
    assert [(each.fire_at, each.at, each.job) for each in records] == [
        (NOW + HOUR, NOW + 9000, "a"),
        (NOW + 2 * HOUR, NOW + 9000, "b"),
    ]
    assert progress == Progress(cursor=NOW + 2 * HOUR, last_fire=NOW + 2 * HOUR, live=("a", "b"), fired=2)
    told = settled.told(("a", "b"))
    assert (told.outcome, told.jobs, told.repeated) == ("fired", ("a", "b"), False)


def test_what_has_changed_meanwhile_makes_it_stale() -> None:
    row = a_schedule()
    wish = a_fire(row)
    moved = replace(row, progress=replace(row.progress, cursor=NOW + 1))
    edited = scheduling.edit(row, {"priority": 1}, NOW).schedule
    paused = replace(scheduling.pause(row, NOW).schedule, version=row.version)
    removed = replace(scheduling.remove(row, NOW).schedule, version=row.version)
    for changed in (None, moved, edited, paused, removed):
        settled = settle(changed, wish)
        assert (settled.outcome, settled.final) == ("stale", True), changed
        assert settled.told().outcome == "stale"


def test_the_same_fire_again_is_a_repeat() -> None:
    row = a_schedule()
    wish = a_fire(row)
    after = replace(row, progress=replace(row.progress, cursor=wish.to))
    settled = settle(after, wish, known=(record(wish.to),))
    assert settled.final
    assert settled.told() == firing.Fired(outcome="fired", jobs=("job",), repeated=True)
    skipped = settle(after, wish, known=(record(wish.to, None),))
    assert skipped.told() == firing.Fired(outcome="skipped", repeated=True)


def test_a_recorded_time_is_not_fired_again_but_the_cursor_moves_on() -> None:
    row = a_schedule(misfire="catch_up")
    wish = a_fire(row, 2 * HOUR)
    settled = settle(row, wish, known=(record(NOW + HOUR),))
    assert [shot.fire_at for shot in settled.shots] == [NOW + 2 * HOUR]
    both = settle(row, wish, known=(record(NOW + HOUR), record(NOW + 2 * HOUR)))
    assert (both.outcome, both.shots, both.final) == ("skipped", (), False)
    assert firing.written(row, wish, both, (), NOW)[1].cursor == NOW + 2 * HOUR


def test_overlap_skips_while_one_lives() -> None:
    row = a_schedule(overlap="skip", misfire="catch_up")
    row = replace(row, progress=replace(row.progress, live=("old", "gone")))
    wish = a_fire(row, 2 * HOUR)
    settled = settle(row, wish, live=("old",))
    assert (settled.outcome, settled.shots, settled.skipped, settled.live) == ("skipped", (), wish.shots, ("old",))
    records, progress = firing.written(row, wish, settled, (), NOW)
    assert [each.outcome for each in records] == ["skipped", "skipped"]
    assert (progress.fired, progress.skipped, progress.live, progress.cursor) == (0, 2, ("old",), wish.to)
    assert progress.last_fire is None
    free = settle(row, wish)
    assert (free.shots, free.skipped) == (wish.shots[:1], wish.shots[1:])


def test_by_hand_neither_pause_nor_overlap_nor_the_cursor_count() -> None:
    row = scheduling.pause(a_schedule(overlap="skip"), NOW).schedule
    row = replace(row, progress=replace(row.progress, live=("old",), last_error="x", last_fire=NOW + 5))
    wish = firing.fire_now(row, NOW + 1, "job")
    settled = settle(row, wish, live=("old",))
    assert settled.shots == wish.shots
    (written,), progress = firing.written(row, wish, settled, ("job",), NOW + 2)
    assert (written.manual, written.key, written.fire_at) == (True, "job", NOW + 1)
    assert (progress.cursor, progress.live, progress.last_error) == (NOW, ("old", "job"), None)
    assert progress.last_fire == NOW + 5
    again = settle(row, wish, known=(record(NOW + 1, manual=True),))
    assert again.told() == firing.Fired(outcome="fired", jobs=("job",), repeated=True)
    edited = scheduling.edit(row, {"priority": 1}, NOW).schedule
    assert settle(edited, wish).outcome == "stale"


def test_an_error_is_noted_and_nothing_else() -> None:
    row = a_schedule()
    wish = firing.failed(row, "x" * 5000)
    settled = settle(row, wish)
    assert (settled.outcome, settled.final) == ("noted", False)
    records, progress = firing.written(row, wish, settled, (), NOW + 1)
    assert records == []
    assert (progress.errors, progress.last_error_at, progress.cursor) == (1, NOW + 1, NOW)
    assert len(progress.last_error or "") == firing.LONGEST_ERROR


def test_only_the_latest_live_jobs_are_kept_in_mind() -> None:
    row = a_schedule()
    known = tuple(f"job-{n}" for n in range(40))
    row = replace(row, progress=replace(row.progress, live=known))
    wish = a_fire(row)
    _, progress = firing.written(row, wish, settle(row, wish, live=known), ("new",), NOW)
    assert len(progress.live) == firing.LIVE_KEPT
    assert progress.live[-1] == "new"


def test_records_are_swept_now_and_then() -> None:
    assert not firing.sweeps(Progress(fired=98), Progress(fired=99))
    assert firing.sweeps(Progress(fired=99), Progress(fired=100))
    assert firing.sweeps(Progress(fired=50, skipped=49), Progress(fired=50, skipped=60))
