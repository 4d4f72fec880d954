"""What has happened, in Python: `app.history`. Charts come from roll-ups and never from a scan of the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ..client.client import Client
from ..context.context import instant
from ..core import ages as aging
from ..core import compare as comparing
from ..core import event, names, rollup, young
from ..core import filter as filters
from ..core import heat as heating
from ..core import series as charts
from ..core.compare import Against, Comparison, Window
from ..core.depth import DepthSeries, depth_series
from ..core.duration import Duration, seconds
from ..core.heat import Heat
from ..core.histogram import Histogram
from ..core.reading import FLEET, Reading
from ..core.rollup import FINE, HOUR, KEEP, MINUTE, Rollup, floor
from ..core.series import EventView, PairSeries, ReadingView, Series
from ..ports import Query
from ..storages.shared.history import began


class History:
    """`app.history`: what ended how, and how long it took.
    `since` is a moment, or how long before `until` (None: now); `step` is what one point of a chart
    stands for.

    >>> app.history.series_sync(since="1h", queue="mail").whole.outcomes
    {'failed': 1, 'succeeded': 1}
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def series(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: Duration | datetime = "24h",
        until: datetime | None = None,
        step: Duration | None = None,
        waiting: bool = True,
        fine: bool = False,
    ) -> Series:
        """How many runs ended how, and how long they waited and took, over time. At most 2,000 points. Where it ends
        now, jobs that still wait count by their age among the waits of the last point and of the whole: what is never
        claimed would be missing otherwise. `waiting=False` leaves them out.

        While the storage has less than ten minutes of history, `fine=True` answers with points of five seconds over
        the time that there is, whatever range and step are asked for; after that it changes nothing."""
        found = await self._fine_rows(queue, task) if fine and until is None else None
        rows, begin, now, size = found or await self._rows(queue, task, since, until, step)
        waits = await self._ages(queue) if waiting and until is None else {}
        return charts.series(rows, begin, now, size, aging.of(waits, queue, task))

    async def tasks(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: Duration | datetime = "24h",
        until: datetime | None = None,
        step: Duration | None = None,
        waiting: bool = True,
    ) -> Sequence[PairSeries]:
        """The same for each queue and task by itself."""
        rows, begin, now, size = await self._rows(queue, task, since, until, step)
        waits = await self._ages(queue) if waiting and until is None else {}
        own = {pair: times for pair, times in waits.items() if task in (None, pair[1])}
        return charts.by_pair(rows, begin, now, size, own)

    async def heat(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: Duration | datetime = "24h",
        until: datetime | None = None,
        step: Duration | None = None,
    ) -> Heat:
        """How long runs took: over time in bands, and all of them as one histogram."""
        rows, begin, now, size = await self._rows(queue, task, since, until, step)
        return heating.heat(rows, begin, now, size)

    async def depth(
        self,
        *,
        queue: str | None = None,
        since: Duration | datetime = "24h",
        until: datetime | None = None,
        step: Duration | None = None,
    ) -> DepthSeries:
        """How much lay in the queues over time, as the leader has noted it once a minute. At most 2,000 points.
        Of the first ten minutes of a storage the leader notes it every five seconds: `step="5s"`, for an hour."""
        if queue is not None:
            names.check_name("queue", queue)
        now, begin, end, size = await self._range(since, until, step, may_be_fine=True)
        if size == FINE:
            noted = await self._soundings(FINE, floor(begin, FINE), None if until is None else end)
            return depth_series(noted, floor(begin, FINE), end, size, queue)
        resolution = min(HOUR, rollup.resolution_for(now - begin, size))
        size = max(size, resolution)
        first = rollup.floor(begin, size)
        found: list[Reading] = []
        for fine, begins, ends in rollup.parts(resolution, first, now, None if until is None else end):
            found += await self._soundings(fine, begins, ends)
        return depth_series(found, first, end, size, queue)

    async def compare(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: Duration = "24h",
        against: Against = "before",
    ) -> Comparison:
        """How each queue and task fared in the last `since`, against the same length just before, a day or a week
        earlier. Both ranges are whole minutes, or whole hours from a day on."""
        _check_names(queue, task)
        now = await self._client.ask(lambda storage: storage.time())
        span = _length(since)
        here, there = comparing.windows(span, against, now)
        step = comparing.step_of(span)
        found = [await self._within(each, step, now, queue, task) for each in (here, there)]
        return comparing.compare(found[0], here, found[1], there)

    async def timeline(self, job_id: str) -> Sequence[EventView]:
        """What happened to one job, oldest first; JobNotFound."""
        job = await self._client.get(job_id)
        stored = await self._client.ask(lambda storage: storage.timeline(job_id))
        return [charts.event_view(line) for line in event.timeline(job, stored)]

    async def pods(self, *, pod: str | None = None, since: Duration | datetime = "1h") -> Sequence[ReadingView]:
        """What pods have measured of themselves and of their storage: a reading a minute, or an hour further back."""
        now = await self._client.ask(lambda storage: storage.time())
        begin = _begin(since, now)
        resolution = MINUTE if now - begin <= min(KEEP["readings"], 6.0 * HOUR) else HOUR
        first = rollup.floor(begin, resolution)
        found = await self._client.ask(lambda storage: storage.readings(resolution, first, pod=pod))
        return [charts.reading_view(reading) for reading in found if reading.pod != FLEET]

    async def _rows(
        self,
        queue: str | None,
        task: str | None,
        since: Duration | datetime,
        until: datetime | None,
        step: Duration | None,
    ) -> tuple[Sequence[Rollup], float, float, float]:
        _check_names(queue, task)
        now, begin, end, size = await self._range(since, until, step)
        resolution = rollup.resolution_for(now - begin, size)
        size = max(size, resolution)  # the finer rows may be gone
        first = rollup.floor(begin, size)
        last = None if until is None else end
        rows: list[Rollup] = []
        for fine, begins, ends in rollup.parts(resolution, first, now, last):
            rows += await self._read(fine, begins, ends, queue, task)
        return rows, first, end, size

    async def _fine_rows(
        self, queue: str | None, task: str | None
    ) -> tuple[Sequence[Rollup], float, float, float] | None:
        """The whole history by seconds, if it is young and known so."""
        _check_names(queue, task)
        now = await self._client.ask(lambda storage: storage.time())
        if not young.is_young(await self._client.ask(lambda storage: began(storage, now)), now):
            return None
        since = floor(now - young.YOUNG, MINUTE)
        # In this order: a minute that was written meanwhile has its steps.
        minutes = await self._read(MINUTE, since, None, queue, task)
        steps = await self._read(FINE, since, None, queue, task)
        return (steps, young.begins(steps, now), now, float(FINE)) if young.covers(steps, minutes) else None

    async def _ages(self, queue: str | None) -> dict[tuple[str, str], Histogram]:
        """Of jobs that still wait, the oldest; only if there may be more of them, how many there are."""
        which = filters.parse("state:ready" if queue is None else f"state:ready queue:{queue}")
        query = Query(filter=which, limit=aging.LOOKED_AT, next_first=True)
        page = await self._client.ask(lambda storage: storage.find(query))
        now = await self._client.ask(lambda storage: storage.time())
        oldest = [(job.queue, job.task, now - job.run_at) for job in page.jobs]
        if len(oldest) < aging.LOOKED_AT:
            return aging.ages(oldest, (), {})
        due = await self._client.ask(lambda storage: storage.due_tasks())
        ready = {each.queue.name: each.ready for each in await self._client.ask(lambda storage: storage.queues())}
        return aging.ages(oldest, [each for each in due if queue in (None, each.queue)], ready)

    async def _range(
        self,
        since: Duration | datetime,
        until: datetime | None,
        step: Duration | None,
        *,
        may_be_fine: bool = False,
    ) -> tuple[float, float, float, float]:
        """Now, where a chart begins and ends, and what one point of it stands for."""
        now = await self._client.ask(lambda storage: storage.time())
        end = now if until is None else min(instant(until, "until"), now)
        begin = _begin(since, end)
        asked = None if step is None else seconds(step, "step")
        if may_be_fine and asked == FINE and now - begin <= KEEP["fine readings"]:
            return now, begin, end, asked
        return now, begin, end, rollup.step_for(end - begin, asked)

    async def _within(
        self, window: Window, resolution: int, now: float, queue: str | None, task: str | None
    ) -> list[Rollup]:
        rows: list[Rollup] = []
        for fine, begins, ends in rollup.parts(resolution, window.since, now, window.until):
            rows += await self._read(fine, begins, ends, queue, task)
        return rows

    async def _soundings(self, resolution: int, since: float, until: float | None) -> Sequence[Reading]:
        return await self._client.ask(lambda storage: storage.readings(resolution, since, until, pod=FLEET))

    async def _read(
        self, resolution: int, since: float, until: float | None, queue: str | None, task: str | None
    ) -> list[Rollup]:
        return [
            *await self._client.ask(lambda storage: storage.rollups(resolution, since, until, queue=queue, task=task))
        ]

    def series_sync(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: Duration | datetime = "24h",
        until: datetime | None = None,
        step: Duration | None = None,
        waiting: bool = True,
        fine: bool = False,
    ) -> Series:
        return self._client.run_sync(
            self.series(queue=queue, task=task, since=since, until=until, step=step, waiting=waiting, fine=fine)
        )

    def tasks_sync(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: Duration | datetime = "24h",
        until: datetime | None = None,
        step: Duration | None = None,
        waiting: bool = True,
    ) -> Sequence[PairSeries]:
        return self._client.run_sync(
            self.tasks(queue=queue, task=task, since=since, until=until, step=step, waiting=waiting)
        )

    def heat_sync(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: Duration | datetime = "24h",
        until: datetime | None = None,
        step: Duration | None = None,
    ) -> Heat:
        return self._client.run_sync(self.heat(queue=queue, task=task, since=since, until=until, step=step))

    def depth_sync(
        self,
        *,
        queue: str | None = None,
        since: Duration | datetime = "24h",
        until: datetime | None = None,
        step: Duration | None = None,
    ) -> DepthSeries:
        return self._client.run_sync(self.depth(queue=queue, since=since, until=until, step=step))

    def compare_sync(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: Duration = "24h",
        against: Against = "before",
    ) -> Comparison:
        return self._client.run_sync(self.compare(queue=queue, task=task, since=since, against=against))

    def timeline_sync(self, job_id: str) -> Sequence[EventView]:
        return self._client.run_sync(self.timeline(job_id))

    def pods_sync(self, *, pod: str | None = None, since: Duration | datetime = "1h") -> Sequence[ReadingView]:
        return self._client.run_sync(self.pods(pod=pod, since=since))


def _check_names(queue: str | None, task: str | None) -> None:
    if queue is not None:
        names.check_name("queue", queue)
    if task is not None:
        names.check_name("task", task)


def _begin(since: Duration | datetime, now: float) -> float:
    if isinstance(since, datetime):
        return min(instant(since, "since"), now)
    return now - _length(since)


def _length(since: Duration) -> float:
    age = seconds(since, "since")
    if age <= 0:
        raise ValueError("since must be longer than nothing, for example 1h")
    return age
