"""Attention for the first page and for the API: evidence that is read now, and what `treadle doctor` found lately.

Doctor looks at everything, and that is dear. So it looks at most every thirty seconds while somebody wants to know,
beside the page and never in its way: a page has what was found the last time. When that changes, pages are told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from .. import checks
from ..core import attention, rollup
from ..core import filter as filters
from ..core.attention import Evidence, Item
from ..ports import Query

if TYPE_CHECKING:
    from ..app import App
    from ..core.fact import Fact
    from ..core.records import FailureView
    from ..core.series import Series
    from .dashboard import Dashboard

log = logging.getLogger("treadle.web")

EVERY: Final = 30.0
LATELY: Final = timedelta(minutes=5)
SAMPLE: Final = 200  # jobs that are looked at for causes which people know of


class Attending:
    def __init__(self, web: Dashboard, *, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._web = web
        self._clock = clock
        self._facts: Sequence[Fact] = ()  # those to show
        self._found: Sequence[Fact] = ()
        self._asked: float | None = None
        self._asking: asyncio.Task[None] | None = None
        self._seen: dict[tuple[str, str], float] = {}

    async def gather(self) -> Evidence:
        """What there is to judge by now. Answers are shared with whatever else the page asks."""
        app, counts = self._web.reads, self._web.counts
        stuck = asyncio.ensure_future(counts.jobs("is:stuck"))
        queues, pods, warnings, schedules, failures, recent = await asyncio.gather(
            counts.get(("queues",), app.queues.list),
            app.pods.list(),
            counts.get(("warnings",), app.warnings),
            counts.get(("schedules",), app.schedules.list),
            counts.get(("failures", "", "", "50"), lambda: app.jobs.failures(limit=50)),
            counts.get(("series", "15m"), lambda: app.history.series(since="15m")),
        )
        poison = await counts.jobs(_poison(failures.groups))
        now = datetime.now(UTC)
        outcomes = _last_minutes(recent, now)
        return Evidence(
            now=now,
            warnings=warnings,
            queues=queues,
            pods=pods,
            schedules=schedules,
            outcomes=outcomes,
            muted=await self._muted(app, outcomes),
            facts=self.facts(),
            poison=sum(poison.values()),
            stuck=sum((await stuck).values()),
        )

    def judge(self, evidence: Evidence) -> tuple[Item, ...]:
        """The items, each with since when."""
        found = attention.bounded(attention.find(evidence))
        items, self._seen = attention.remember(found, self._seen, self._clock())
        return tuple(replace(item, text=self._web.redact.text(item.text)) for item in items)

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
            found = (checks.schema(status), *await checks.examine(app))
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

    # Causes that people know of --------------------------------------------------------------------------------------

    async def _muted(self, app: App, outcomes: Mapping[str, int]) -> Mapping[str, int]:
        """How many of the bad ends came of muted causes. Asked only if there would be an alarm otherwise."""
        if not attention.is_failing(outcomes, {}):
            return {}
        mutes = await app.client.ask(lambda storage: storage.mutes())
        if not mutes:
            return {}
        causes = frozenset(each.cause for each in mutes)
        share = await self._web.counts.get(("muted", *sorted(causes)), lambda: _muted_share(app, causes))
        return {each: round(outcomes.get(each, 0) * share) for each in attention.BAD}


async def _muted_share(app: App, causes: frozenset[str]) -> float:
    """Of the attempts that ended badly of late, as the newest of their jobs tell."""
    since = await app.client.ask(lambda storage: storage.time()) - LATELY.total_seconds()
    pages = [
        await app.client.ask(lambda storage, text=text: storage.find(Query(filter=filters.parse(text), limit=SAMPLE)))  # type: ignore[misc]
        for text in ("state:failed finished:<5m", "is:retrying")
    ]
    return attention.muted_share((job for page in pages for job in page.jobs), causes, since)


def _troubles(facts: Sequence[Fact]) -> list[str]:
    return [f"{fact.code} {fact.level}" for fact in facts if fact.level != "ok"]


def _poison(groups: Sequence[FailureView]) -> str:
    """Jobs that were poison today, but for the causes that people know of, as far as a filter has room for them."""
    found = "is:poison finished:<24h"
    for group in groups:
        if group.muted and len(longer := f"{found} -{group.filter}") < filters.LONGEST:
            found = longer
    return found


def _last_minutes(recent: Series, now: datetime) -> dict[str, int]:
    """How the runs of the last five minutes ended."""
    since = now - LATELY - timedelta(minutes=1)
    found: dict[str, int] = {}
    for point in recent.points:
        if point.at >= since:
            rollup.add_counts(found, point.outcomes)
    return found
