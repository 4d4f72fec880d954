"""Attention for the first page and for the API: evidence that is read now, and what `treadle doctor` found lately.

Doctor looks at everything, and that is dear. So it looks at most every thirty seconds while somebody wants to know,
beside the page and never in its way: a page has what was found the last time. When that changes, pages are told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ..client.client import new_id
from ..core import acknowledgement, attention, failing, streak
from ..core import drain as draining
from ..core import filter as filters
from ..core.acknowledgement import Acknowledgement
from ..core.attention import Evidence, Item
from ..core.audit import AuditLine
from ..core.failing import Failing, Pair, Watched
from ..operate import doctor
from ..ports import Query
from .problem import Problem

if TYPE_CHECKING:
    from ..app import App
    from ..core.fact import Fact
    from ..core.job import Job
    from ..core.mute import Mute
    from ..core.records import FailureView
    from ..core.series import PairSeries, Series
    from ..core.streak import Streak
    from ..core.view import PodView, QueueView
    from .dashboard import Dashboard

log = logging.getLogger("treadle.web")

EVERY: Final = 30.0
MOST_LOOKED_UP: Final = 10  # of what fails, the worst; of the others the cause is not told
SAMPLE: Final = 100  # jobs of a task that fails, of those retrying and of those failed, that are asked for the cause
PATIENCE: Final = 0.3  # what a page waits for the causes and the usual shares of what fails; the next one has them
USUAL_FOR: Final = 600.0
CAUSE_FOR: Final = 10.0
MOST_ACKNOWLEDGED: Final = 50  # that are shown
MOST_KEPT_HERE: Final = 1_000


class Attending:
    def __init__(self, web: Dashboard, *, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._web = web
        self._clock = clock
        self._facts: Sequence[Fact] = ()  # those to show
        self._found: Sequence[Fact] = ()
        self._asked: float | None = None
        self._asking: asyncio.Task[None] | None = None
        self._seen: dict[tuple[str, str], float] = {}
        self._own: list[Acknowledgement] = []  # where the dashboard is read-only
        self._last: dict[str, float] = {}  # what is acknowledged → when it was last there
        self._over: set[tuple[str, float]] = set()  # acknowledgements, by cause and time, of what was over since

    async def gather(self) -> Evidence:
        """What there is to judge by now. Answers are shared with whatever else the page asks."""
        app, counts = self._web.reads, self._web.counts
        stuck = asyncio.ensure_future(counts.jobs("is:stuck"))
        reads = asyncio.gather(
            counts.get(("queues",), app.queues.list),
            app.pods.list(),
            counts.get(("warnings",), app.warnings),
            counts.get(("schedules",), app.schedules.list),
            counts.get(("failures", "", "", "50"), lambda: app.jobs.failures(limit=50)),
            counts.get(("pairs", "1h"), lambda: app.history.tasks(since="1h", step="1m", waiting=False)),
        )
        mutes, (queues, pods, warnings, schedules, failures, pairs) = await asyncio.gather(
            app.client.ask(lambda storage: storage.mutes()), reads
        )
        poisoned = _poison(failures.groups)
        poison = sum((await counts.jobs(poisoned)).values())
        last_poison = await counts.get(("poison", poisoned), lambda: _last_of(app, poisoned)) if poison else None
        now = datetime.now(UTC)
        at = now.timestamp()
        watched = Watched(
            short=failing.lately(pairs, at - failing.SHORT), long=failing.lately(pairs, at - failing.LONG)
        )
        found, causes, days = await self._failing(app, watched, mutes)
        return Evidence(
            now=now,
            warnings=warnings,
            queues=queues,
            pods=pods,
            schedules=schedules,
            failing=found,
            causes=causes,
            facts=self.facts(),
            poison=poison,
            last_poison=last_poison,
            stuck=sum((await stuck).values()),
            mutes=mutes,
            streaks=_streaks(queues, pods, pairs, found, days, now),
        )

    def judge(self, evidence: Evidence) -> tuple[Item, ...]:
        """The items, each with since when; those that somebody has acknowledged come last."""
        now, clock = evidence.now, self._clock()
        found, self._seen = attention.remember(attention.find(evidence), self._seen, clock)
        given = self._acknowledged(evidence)
        items = acknowledgement.marked(found, given, now)
        fresh = [item for item in items if item.acknowledged is None]
        rows = acknowledgement.marked(attention.grouped(fresh), given, now)
        known = [item for item in items if item.acknowledged is not None]
        self._last = acknowledgement.last_seen(given, (*items, *rows), self._last, clock)
        self._over |= {(each.cause, each.at) for each in acknowledgement.over(given, self._last, clock)}
        return tuple(
            replace(item, text=self._web.redact.text(item.text), fingerprint="")
            for item in (*rows, *known[:MOST_ACKNOWLEDGED])
        )

    # Who knows of it -------------------------------------------------------------------------------------------------

    def _acknowledged(self, evidence: Evidence) -> list[Acknowledgement]:
        given = [*acknowledgement.kept(evidence.mutes), *self._own]
        self._over &= {(each.cause, each.at) for each in given}
        return [each for each in given if (each.cause, each.at) not in self._over]

    async def item(self, key: str) -> Item:
        """The item with this key, as it is now."""
        for item in self.judge(await self.gather()):
            if item.key == key:
                return item
        raise Problem("not_found", "it is over, or has changed since you saw it: look again")

    async def acknowledge(self, key: str, *, note: str = "", by: str | None = None) -> Item:
        """Fold it until it changes. A read-only dashboard remembers it here."""
        item, web = await self.item(key), self._web
        mute = acknowledgement.mute_of(key, item.measure, note, by)
        if web.is_read_only:
            at = await web.reads.client.ask(lambda storage: storage.time())
            kept = acknowledgement.kept([replace(mute, at=at)])
            others = [each for each in self._own if each.cause != mute.cause]
            self._own = [*others, *(replace(each, kept_here=True) for each in kept)][-MOST_KEPT_HERE:]
        else:
            line = AuditLine(
                id=new_id(), act="attention.acknowledge", subject=_subject(item), by=by, reason=note or None
            )
            await self._forget_over()
            await web.app.client.ask(lambda storage: storage.mute(mute, line=line))
        web.hub.stir("pods")
        return item

    async def unacknowledge(self, key: str, *, by: str | None = None) -> bool:
        """Show it first again; whether it was acknowledged."""
        thing, web = key.rsplit(":", 2)[0], self._web
        own = [each for each in self._own if each.thing == thing]
        self._own = [each for each in self._own if each.thing != thing]
        stored = await web.reads.client.ask(lambda storage: storage.mutes())
        found = [each for each in acknowledgement.kept(stored) if each.thing == thing]
        if found and web.is_read_only:
            raise Problem("forbidden", "it was acknowledged elsewhere, and this dashboard is read-only")
        for each in found:
            line = AuditLine(id=new_id(), act="attention.unacknowledge", subject=thing, by=by)
            await web.app.client.ask(lambda storage, cause=each.cause, line=line: storage.unmute(cause, line=line))  # type: ignore[misc]
        web.hub.stir("pods")
        return bool(own or found)

    async def _forget_over(self) -> None:
        """Acknowledgements of what is over go when the next one is written: no page writes anything by itself."""
        for cause, _ in sorted(self._over):
            await self._web.app.client.ask(lambda storage, cause=cause: storage.unmute(cause))  # type: ignore[misc]

    # What doctor found -----------------------------------------------------------------------------------------------

    def facts(self) -> Sequence[Fact]:
        """What it found the last time. If that was long ago, it looks again, and nobody waits for it."""
        if self._asked is None or self._clock() - self._asked >= EVERY:
            self._asked = self._clock()
            self._asking = asyncio.ensure_future(self.look())
        return self._facts

    async def look(self) -> None:
        self._asked = self._clock()
        app = self._web.reads
        try:
            status = await app.client.ask(lambda storage: storage.schema(), ())
            found = (doctor.schema(status), *await doctor.examine(app.client))
            found, self._found = attention.lasting(found, self._found), found
        except Exception as error:  # the storage is away: pages say so themselves
            log.debug("doctor could not look: %s", error)
            return
        has_changed = _troubles(found) != _troubles(self._facts)
        self._facts = found
        if has_changed:
            self._web.hub.stir("pods")

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    # What fails ------------------------------------------------------------------------------------------------------

    async def _failing(
        self, app: App, watched: Watched, mutes: Sequence[Mute]
    ) -> tuple[Sequence[Failing], dict[Pair, attention.Cause], dict[Pair, Series]]:
        """What fails more than usual, why, and how it fared over the day. What is usual, and why it fails, is looked up
        only for what would be an alarm otherwise: both read more than a page should."""
        suspects = failing.find(watched)[:MOST_LOOKED_UP]
        if not suspects:
            return (), {}, {}
        muted = frozenset(each.cause for each in mutes)
        days, jobs = await asyncio.gather(
            asyncio.gather(*(self._day(app, each) for each in suspects)),
            asyncio.gather(*(self._sample(app, each) for each in suspects)),
        )
        of = dict(zip([each.pair for each in suspects], jobs, strict=True))
        since = await app.client.ask(lambda storage: storage.time()) - failing.LONG
        found = failing.find(
            replace(
                watched,
                usual={pair: failing.usual(day) for pair, day in zip(of, days, strict=True) if day is not None},
                muted={pair: attention.muted_share(each, muted, since) for pair, each in of.items()},
            )
        )
        causes = {pair: attention.main_cause(each, muted, since) for pair, each in of.items()}
        return (
            found,
            {pair: cause for pair, cause in causes.items() if cause is not None},
            {pair: day for pair, day in zip(of, days, strict=True) if day is not None},
        )

    async def _day(self, app: App, each: Failing) -> Series | None:
        task = each.task or None
        return await self._web.counts.quickly(
            ("usual", each.queue, each.task),
            lambda: app.history.series(queue=each.queue, task=task, since="24h", step="5m", waiting=False),
            within=PATIENCE,
            fresh=USUAL_FOR,
        )

    async def _sample(self, app: App, each: Failing) -> Sequence[Job]:
        """Jobs of it that are tried again or have failed: the newest."""
        of = f"queue:{each.queue}" + (f" task:{each.task}" if each.task else "")
        found = await self._web.counts.quickly(
            ("failing", each.queue, each.task), lambda: _newest(app, of), within=PATIENCE, fresh=CAUSE_FOR
        )
        return () if found is None else found


async def _newest(app: App, of: str) -> Sequence[Job]:
    pages = [
        await app.client.ask(lambda storage, text=text: storage.find(Query(filter=filters.parse(text), limit=SAMPLE)))  # type: ignore[misc]
        for text in (f"is:retrying {of}", f"state:failed finished:<1h {of}")
    ]
    return [job for page in pages for job in page.jobs]


async def _last_of(app: App, text: str) -> datetime | None:
    """When the last of the newest such jobs ended."""
    page = await app.client.ask(lambda storage: storage.find(Query(filter=filters.parse(text), limit=SAMPLE)))
    ends = [job.finished_at for job in page.jobs if job.finished_at is not None]
    return datetime.fromtimestamp(max(ends), UTC) if ends else None


def _streaks(
    queues: Sequence[QueueView],
    pods: Sequence[PodView],
    pairs: Sequence[PairSeries],
    found: Sequence[Failing],
    days: Mapping[Pair, Series],
    now: datetime,
) -> dict[tuple[str, str, str], Streak]:
    """Since when tasks fail, and queues are behind or cool down, as roll-ups tell. None of it began before the first
    run of all, though the five minutes, or the minute, that it is known by did."""
    by_queue: dict[str, list[PairSeries]] = {}
    for pair in pairs:
        by_queue.setdefault(pair.queue, []).append(pair)
    streaks: dict[tuple[str, str, str], Streak | None] = {}
    for each in found:
        own = [pair.series for pair in by_queue.get(each.queue, ()) if each.task in ("", pair.task)]
        streaks["failing", *each.pair] = failing.since(own, days.get(each.pair), each.usual)
    for show in ("behind", "cooling"):
        for queue in attention.queues_that(show, queues, now):
            own = [pair.series for pair in by_queue.get(queue.name, ())]
            streaks[show, queue.name, ""] = attention.history_of(show, own)
    began = draining.began(pairs, [pod.started_at for pod in pods])
    first = None if began is None else began.timestamp()
    known_since = min((pair.series.points[0].at.timestamp() for pair in pairs), default=0.0)
    return {key: streak.not_before(found, first, known_since) for key, found in streaks.items() if found is not None}


def _subject(item: Item) -> str:
    return f"{item.kind} {item.subject}".strip()[:200]


def _troubles(facts: Sequence[Fact]) -> list[str]:
    return [f"{fact.code} {fact.level}" for fact in facts if fact.level != "ok"]


def _poison(groups: Sequence[FailureView]) -> str:
    """Jobs that were poison today, but for the causes that people know of, as far as a filter has room for them."""
    found = "is:poison finished:<24h"
    for group in groups:
        if group.muted and len(longer := f"{found} -{group.filter}") < filters.LONGEST:
            found = longer
    return found
