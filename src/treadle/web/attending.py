"""Attention for the first page and for the API: evidence that is read now, and what `treadle doctor` found lately.

Doctor looks at everything, and that is dear. So it looks at most every thirty seconds while somebody wants to know,
beside the page and never in its way: a page has what was found the last time. When that changes, pages are told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from .. import checks
from ..core import attention, failing
from ..core import filter as filters
from ..core.attention import Evidence, Item
from ..core.failing import Failing, Pair, Watched
from ..ports import Query

if TYPE_CHECKING:
    from ..app import App
    from ..core.fact import Fact
    from ..core.job import Job
    from ..core.records import FailureView
    from .dashboard import Dashboard

log = logging.getLogger("treadle.web")

EVERY: Final = 30.0
MOST_LOOKED_UP: Final = 10  # of what fails, the worst; of the others the cause is not told
SAMPLE: Final = 100  # jobs of a task that fails, of those retrying and of those failed, that are asked for the cause
PATIENCE: Final = 0.3  # what a page waits for the causes and the usual shares of what fails; the next one has them
USUAL_FOR: Final = 600.0
CAUSE_FOR: Final = 10.0


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
        queues, pods, warnings, schedules, failures, pairs = await asyncio.gather(
            counts.get(("queues",), app.queues.list),
            app.pods.list(),
            counts.get(("warnings",), app.warnings),
            counts.get(("schedules",), app.schedules.list),
            counts.get(("failures", "", "", "50"), lambda: app.jobs.failures(limit=50)),
            counts.get(("pairs", "1h"), lambda: app.history.tasks(since="1h", step="1m")),
        )
        poison = await counts.jobs(_poison(failures.groups))
        now = datetime.now(UTC)
        at = now.timestamp()
        watched = Watched(
            short=failing.lately(pairs, at - failing.SHORT), long=failing.lately(pairs, at - failing.LONG)
        )
        found, causes = await self._failing(app, watched)
        return Evidence(
            now=now,
            warnings=warnings,
            queues=queues,
            pods=pods,
            schedules=schedules,
            failing=found,
            causes=causes,
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

    # What fails ------------------------------------------------------------------------------------------------------

    async def _failing(self, app: App, watched: Watched) -> tuple[Sequence[Failing], dict[Pair, attention.Cause]]:
        """What fails more than usual, and why. What is usual, and why it fails, is looked up only for what would be an
        alarm otherwise: both read more than a page should."""
        suspects = failing.find(watched)[:MOST_LOOKED_UP]
        if not suspects:
            return (), {}
        mutes = await app.client.ask(lambda storage: storage.mutes())
        muted = frozenset(each.cause for each in mutes)
        usual, jobs = await asyncio.gather(
            asyncio.gather(*(self._usual(app, each) for each in suspects)),
            asyncio.gather(*(self._sample(app, each) for each in suspects)),
        )
        of = dict(zip([each.pair for each in suspects], jobs, strict=True))
        since = await app.client.ask(lambda storage: storage.time()) - failing.LONG
        found = failing.find(
            replace(
                watched,
                usual=dict(zip(of, usual, strict=True)),
                muted={pair: attention.muted_share(each, muted, since) for pair, each in of.items()},
            )
        )
        causes = {pair: attention.main_cause(each, muted, since) for pair, each in of.items()}
        return found, {pair: cause for pair, cause in causes.items() if cause is not None}

    async def _usual(self, app: App, each: Failing) -> float:
        task = each.task or None
        series = await self._web.counts.quickly(
            ("usual", each.queue, each.task),
            lambda: app.history.series(queue=each.queue, task=task, since="24h", step="5m"),
            within=PATIENCE,
            fresh=USUAL_FOR,
        )
        return 0.0 if series is None else failing.usual(series)

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


def _troubles(facts: Sequence[Fact]) -> list[str]:
    return [f"{fact.code} {fact.level}" for fact in facts if fact.level != "ok"]


def _poison(groups: Sequence[FailureView]) -> str:
    """Jobs that were poison today, but for the causes that people know of, as far as a filter has room for them."""
    found = "is:poison finished:<24h"
    for group in groups:
        if group.muted and len(longer := f"{found} -{group.filter}") < filters.LONGEST:
            found = longer
    return found
