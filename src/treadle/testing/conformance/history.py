"""History: roll-ups, readings, and the lines of timelines."""

from __future__ import annotations

from typing import Any

from ...core import lifecycle
from ...core.event import Event
from ...core.job import State
from ...core.outcome import Succeeded
from ...core.reading import FLEET, Depth, Reading
from ...core.rollup import DAY, FINE, HOUR, MINUTE, Rollup, What
from ...ports import Storage
from ..clock import FakeClock
from .builders import a_token
from .steps import Cases, end, put, start, write


def counted(at: float = 600.0, *, resolution: int = MINUTE, runs: int = 1, **fields: Any) -> Rollup:
    names: dict[str, Any] = {"queue": "default", "task": "work", "pod": "p"}
    row = Rollup(resolution=resolution, at=at, **(names | fields))
    row.outcomes["succeeded"] = runs
    for n in range(runs):
        row.wait.add(0.001 * (n + 1))
        row.run.add(0.25)
        row.total.add(5.0)
    return row


def line(job: str, **fields: Any) -> Event:
    own: dict[str, Any] = {"id": a_token(), "job": job, "what": "snoozed"}
    return Event(**(own | fields))


class Rollups(Cases):
    async def test_a_rollup_comes_back_as_it_was_written(self, storage: Storage) -> None:
        row = counted(runs=3, queue="mail 'ü'", task="send")
        await storage.roll_up([row])
        assert list(await storage.rollups(MINUTE, 0.0)) == [row]

    async def test_writing_nothing_is_no_error(self, storage: Storage) -> None:
        await storage.roll_up([])
        await storage.record([])
        assert list(await storage.rollups(MINUTE, 0.0)) == []

    async def test_a_rollup_takes_the_place_of_the_one_before(self, storage: Storage) -> None:
        await storage.roll_up([counted(runs=1)])
        await storage.roll_up([counted(runs=5)])
        await storage.roll_up([counted(runs=5)])
        assert list(await storage.rollups(MINUTE, 0.0)) == [counted(runs=5)]

    async def test_of_two_with_one_key_in_one_call_the_last_counts(self, storage: Storage) -> None:
        await storage.roll_up([counted(runs=1), counted(runs=2)])
        assert list(await storage.rollups(MINUTE, 0.0)) == [counted(runs=2)]

    async def test_a_row_that_goes_on_counting_changes_nothing_here(self, storage: Storage) -> None:
        row = counted()
        await storage.roll_up([row])
        row.run.add(1.0)
        row.outcomes["failed"] = 1
        (found,) = await storage.rollups(MINUTE, 0.0)
        found.run.add(1.0)
        assert list(await storage.rollups(MINUTE, 0.0)) == [counted()]

    async def test_pods_queues_tasks_minutes_and_resolutions_are_kept_apart(self, storage: Storage) -> None:
        rows = [
            counted(),
            counted(pod="other"),
            counted(queue="other"),
            counted(task="other"),
            counted(at=660.0),
            counted(at=0.0, resolution=HOUR),
            counted(resolution=FINE),
        ]
        await storage.roll_up(rows)
        assert len(await storage.rollups(MINUTE, 0.0)) == 5
        assert len(await storage.rollups(FINE, 0.0)) == 1
        assert len(await storage.rollups(HOUR, 0.0)) == 1

    async def test_rollups_are_read_from_and_before_and_by_name(self, storage: Storage) -> None:
        rows = [counted(at=60.0 * n, queue=f"q{n % 2}", task=f"t{n % 3}") for n in range(6)]
        await storage.roll_up(list(reversed(rows)))
        assert [row.at for row in await storage.rollups(MINUTE, 60.0, 240.0)] == [60.0, 120.0, 180.0]
        assert [row.at for row in await storage.rollups(MINUTE, 0.0, queue="q1")] == [60.0, 180.0, 300.0]
        assert [row.at for row in await storage.rollups(MINUTE, 0.0, queue="q1", task="t0")] == [180.0]

    async def test_of_rollups_the_first_few_can_be_asked_for(self, storage: Storage) -> None:
        rows = [counted(at=60.0 * n, queue=f"q{n % 2}") for n in range(6)]
        await storage.roll_up([*reversed(rows), counted(at=0.0, resolution=HOUR)])
        assert [row.at for row in await storage.rollups(MINUTE, 0.0, limit=1)] == [0.0]
        assert [row.at for row in await storage.rollups(MINUTE, 60.0, 300.0, queue="q0", limit=2)] == [120.0, 240.0]
        assert len(await storage.rollups(MINUTE, 0.0, limit=100)) == 6
        assert list(await storage.rollups(MINUTE, 0.0, limit=0)) == []

    async def test_readings_are_kept_as_rollups_are(self, storage: Storage) -> None:
        first = Reading(resolution=MINUTE, at=60.0, pod="p", label="web", cpu=0.5, rss=10, connections=3)
        later = Reading(resolution=MINUTE, at=120.0, pod="q", disk_free=None, wal_bytes=7)
        await storage.roll_up([later, first, counted()])
        await storage.roll_up([first])
        assert list(await storage.readings(MINUTE, 0.0)) == [first, later]
        assert list(await storage.readings(MINUTE, 0.0, 120.0)) == [first]
        assert list(await storage.readings(MINUTE, 0.0, pod="q")) == [later]
        assert list(await storage.readings(HOUR, 0.0)) == []

    async def test_what_is_opened_for_writing_can_be_written(self, storage: Storage) -> None:
        assert await storage.is_writable()

    async def test_depths_of_queues_are_kept_with_a_reading_of_no_pod(self, storage: Storage) -> None:
        depths = {"": Depth(5, 2, 1), "mail": Depth(4, 2, 0), "ü": Depth(1, 0, 1)}
        noted = Reading(resolution=MINUTE, at=60.0, pod=FLEET, depths=depths)
        of_a_pod = Reading(resolution=MINUTE, at=60.0, pod="p")
        await storage.roll_up([of_a_pod, noted])
        assert list(await storage.readings(MINUTE, 0.0, pod=FLEET)) == [noted]
        assert list(await storage.readings(MINUTE, 0.0)) == [noted, of_a_pod]
        deeper = Reading(resolution=MINUTE, at=60.0, pod=FLEET, depths={"": Depth(9, 0, 0)})
        await storage.roll_up([deeper])
        assert list(await storage.readings(MINUTE, 0.0, pod=FLEET)) == [deeper]

    async def test_where_nothing_is_locked_nobody_blocks(self, storage: Storage) -> None:
        await put(storage)
        assert list(await storage.blockers()) == []

    async def test_vitals_are_numbers_or_unknown(self, storage: Storage) -> None:
        vitals = await storage.vitals()
        for value in (vitals.bytes, vitals.wal_bytes, vitals.connections, vitals.disk_free):
            assert value is None or value >= 0


class Timelines(Cases):
    async def test_lines_come_back_oldest_first(self, storage: Storage) -> None:
        id = await put(storage)
        lines = [
            line(id, at=30.0, attempt=2, pod="p", started_at=29.0, detail="for 3 s 'ü'"),
            line(id, at=10.0, what="revived", by="ann"),
            line(id, at=20.0),
        ]
        await storage.record(lines)
        assert list(await storage.timeline(id)) == [lines[1], lines[2], lines[0]]

    async def test_a_line_without_a_time_gets_that_of_the_storage(self, storage: Storage, clock: FakeClock) -> None:
        id = await put(storage)
        clock.advance(100)
        await storage.record([line(id)])
        (found,) = await storage.timeline(id)
        assert found.at is not None
        assert abs(found.at - clock.now()) < 0.001

    async def test_a_line_that_is_sent_again_is_there_once(self, storage: Storage) -> None:
        id = await put(storage)
        once = line(id, at=1.0)
        await storage.record([once, line(id, at=2.0)])
        await storage.record([once])
        assert [each.at for each in await storage.timeline(id)] == [1.0, 2.0]

    async def test_jobs_have_timelines_of_their_own(self, storage: Storage) -> None:
        one, other = await put(storage), await put(storage)
        await storage.record([line(one, at=1.0), line(other, at=2.0)])
        assert [each.at for each in await storage.timeline(one)] == [1.0]

    async def test_lines_about_a_job_that_is_not_there_are_dropped(self, storage: Storage) -> None:
        id = await put(storage)
        gone = "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11"
        await storage.record([line(gone), line("no id at all"), line(id, at=1.0)])
        assert list(await storage.timeline(gone)) == []
        assert list(await storage.timeline("no id at all")) == []
        assert len(await storage.timeline(id)) == 1

    async def test_an_ended_job_keeps_its_lines_and_takes_them_with_it(self, storage: Storage) -> None:
        job = await start(storage)
        await storage.record([line(job.id, at=1.0)])
        ended = await end(storage, job, Succeeded())
        await storage.record([line(job.id, at=2.0)])
        assert len(await storage.timeline(job.id)) == 2
        assert (await write(storage, lifecycle.remove(ended))).accepted
        assert list(await storage.timeline(job.id)) == []

    async def test_a_job_that_is_pruned_takes_its_lines_with_it(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        await storage.record([line(job.id, at=1.0)])
        await end(storage, job, Succeeded())
        clock.advance(365 * DAY)
        assert (await storage.prune(State.SUCCEEDED)).removed == 1
        assert list(await storage.timeline(job.id)) == []


class Forgetting(Cases):
    async def test_what_is_too_old_goes_the_oldest_first_and_a_few_at_a_time(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        now = clock.now()
        await storage.roll_up([counted(at=now - 60.0 * n) for n in range(10)])
        assert await storage.forget_history("minutes", 330.0, 3) == 3
        assert [round(now - row.at) for row in await storage.rollups(MINUTE, 0.0)] == [360, 300, 240, 180, 120, 60, 0]
        assert await storage.forget_history("minutes", 330.0, 3) == 1
        assert await storage.forget_history("minutes", 330.0, 3) == 0
        assert len(await storage.rollups(MINUTE, 0.0)) == 6

    async def test_each_kind_goes_by_itself(self, storage: Storage) -> None:
        id = await put(storage)
        rows = [counted(at=0.0, resolution=each) for each in (FINE, MINUTE, HOUR, DAY)]
        readings = [Reading(resolution=each, at=0.0, pod="p") for each in (FINE, MINUTE, HOUR)]
        await storage.roll_up([*rows, *readings])
        await storage.record([line(id, at=1.0)])

        async def left() -> list[int]:
            return [
                *[len(await storage.rollups(each, 0.0)) for each in (FINE, MINUTE, HOUR, DAY)],
                *[len(await storage.readings(each, 0.0)) for each in (FINE, MINUTE, HOUR)],
                len(await storage.timeline(id)),
            ]

        rollups: tuple[What, ...] = ("seconds", "minutes", "hours", "days")
        readings_: tuple[What, ...] = ("fine readings", "readings", "hourly readings")
        kinds: tuple[What, ...] = (*rollups, *readings_, "events")
        assert await left() == [1] * len(kinds)
        for n, what in enumerate(kinds):
            assert await storage.forget_history(what, 10.0) == 1
            assert await left() == [0] * (n + 1) + [1] * (len(kinds) - 1 - n)
