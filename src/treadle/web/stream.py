"""Server-sent events: hints that a part of a page is stale, not the part itself.

    GET /api/v1/stream?topics=jobs,queues
    event: jobs
    id: 8812
    data: {}

Hints of one topic are merged for 250 ms. They come from the storage's own signals; and because a signal may be lost,
and some changes have none, from a look every two seconds at what each topic is made of, once for all streams and only
while somebody listens. `metrics` carries points for charts: how much there is now, and the last steps of the charts
that the stream was opened with (see `points`). There may be several: a browser opens one stream for all its tabs.

A stream costs one place of 200, no thread and no connection of the database. One user (one address, where nobody logs
in) has half of them at most, and less if others take many: see `core.share`. A reader that does not read is let go.
Who opened it is asked for again every ten seconds: a stream of a token that was revoked, has expired or has another
role by now ends then.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..core.share import Shares
from ..ports import Wake
from .plain import encode, plain
from .points import Asked, Tails
from .problem import Problem

if TYPE_CHECKING:
    from ..app import App
    from ..core.view import QueueView

log = logging.getLogger("treadle.web")

TOPICS: Final = ("jobs", "queues", "pods", "schedules", "limits", "operations", "failures", "metrics")
MERGED: Final = 0.25
KEPT_ALIVE: Final = 15.0
LOOK: Final = 2.0
LONGEST_LOOK: Final = 5.0  # as long as a page may take
MOST: Final = 200
SLOWEST_READER: Final = 30.0
CHECKED: Final = 10.0  # how often it is found out again who has a stream open
LAST_WORD: Final = 1.0
STATES: Final = ("ready", "scheduled", "waiting", "running", "succeeded", "failed", "cancelled")
MOST_DEPTHS: Final = 200
LYING: Final = ("ready", "scheduled", "running")  # what charts of depth show


def message(event: str, data: Any, id: int | None = None) -> bytes:
    """One event. The data is JSON, and so one line."""
    numbered = "" if id is None else f"id: {id}\n"
    return f"event: {event}\n{numbered}data: ".encode() + encode(data) + b"\n\n"


class Subscriber:
    """One stream: the topics it wants, and those it has not been told of yet."""

    def __init__(
        self, topics: Iterable[str], chart: Asked | None = None, charts: Mapping[str, Asked] | None = None
    ) -> None:
        self.topics = frozenset(topics)
        self.chart = chart
        self.charts = {} if charts is None else dict(charts)
        self.stirred = asyncio.Event()
        self._pending: dict[str, Any] = {}

    @property
    def asked(self) -> list[Asked]:
        """Every chart of this stream."""
        return [*self.charts.values(), *([] if self.chart is None else [self.chart])]

    def hint(self, topic: str, data: Any) -> None:
        if topic in self.topics:
            self._pending[topic] = data
            self.stirred.set()

    def take(self) -> dict[str, Any]:
        pending, self._pending = self._pending, {}
        self.stirred.clear()
        return pending


class Hub:
    """All streams of a dashboard, on one event loop."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._subscribers: set[Subscriber] = set()
        self.places = Shares(MOST)
        self._looking: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self._seen: dict[str, Any] = {}
        self._lying: dict[str, QueueView] = {}
        self._tails = Tails(app)
        self._number = int(time.time() * 1000)
        self.closing = asyncio.Event()

    @property
    def count(self) -> int:
        return self.places.taken

    def enter(self, caller: str) -> Callable[[], None]:
        """Take a place for a stream of this caller; what is answered gives it back, once."""
        if self.closing.is_set():
            raise Problem("unavailable", "this server is stopping")
        verdict = self.places.take(caller)
        if verdict == "full":
            said = f"{self.places.most} streams are open: ask again without one"
            raise Problem("unavailable", said, headers={"Retry-After": "30"})
        if verdict == "share":
            said = f"{self.places.held(caller)} streams of yours are open: ask again without one"
            raise Problem("rate_limited", said, headers={"Retry-After": "30"})
        held = [caller]

        def leave() -> None:
            if held:
                self.places.give_back(held.pop())

        return leave

    def subscribe(
        self, topics: Iterable[str], chart: Asked | None = None, charts: Mapping[str, Asked] | None = None
    ) -> Subscriber:
        subscriber = Subscriber(topics, chart, charts)
        self._subscribers.add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        if not self._subscribers and self._looking is not None:
            self._looking.cancel()
            self._looking = None
            self._unlisten()
            self._unlisten = lambda: None

    async def listen(
        self, topics: Iterable[str], chart: Asked | None = None, charts: Mapping[str, Asked] | None = None
    ) -> AsyncIterator[bytes]:
        """What goes over the wire."""
        subscriber = self.subscribe(topics, chart, charts)
        try:
            await self._look_and_listen()
            yield b": treadle\nretry: 3000\n\n"
            while not self.closing.is_set():
                if not await _either(subscriber.stirred, self.closing, KEPT_ALIVE):
                    yield b": still here\n\n"
                    continue
                if self.closing.is_set():
                    break
                with suppress(TimeoutError):  # what else comes meanwhile is told with it
                    async with asyncio.timeout(MERGED):
                        await self.closing.wait()
                for topic, data in subscriber.take().items():
                    self._number += 1
                    yield message(topic, data, self._number)
            yield message("end", {})
        finally:
            self.unsubscribe(subscriber)

    async def close(self) -> None:
        """End all streams."""
        self.closing.set()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._unlisten()
        self._unlisten = lambda: None

    async def _look_and_listen(self) -> None:
        if self._looking is not None:
            return
        loop = asyncio.get_running_loop()
        self._looking = asyncio.ensure_future(self._look())
        storage = await self._app.client.ask(_itself)

        def on_wake(wake: Wake) -> None:  # from any thread
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._on_wake, wake)

        if self._subscribers:  # they may have gone meanwhile
            self._unlisten = storage.listen(on_wake)

    def stir(self, topic: str) -> None:
        """Something has changed that no storage tells of."""
        self._hint(topic)

    def _on_wake(self, wake: Wake) -> None:
        self._hint("jobs")
        self._hint("queues")
        if wake.settings:
            self._hint("pods")

    def _hint(self, topic: str, data: Any = None) -> None:
        for subscriber in self._subscribers:
            subscriber.hint(topic, {} if data is None else data)

    async def _look(self) -> None:
        while True:
            for topic, look in self._looks():
                if not any(topic in each.topics for each in self._subscribers):
                    continue
                try:
                    async with asyncio.timeout(LONGEST_LOOK):
                        seen = await look()
                except Exception as error:  # the storage is away: pages are told once, ask, and say so themselves
                    log.debug("no look at %s: %s", topic, error)
                    if self._seen.pop(topic, None) is not None and topic != "metrics":
                        self._hint(topic)
                    continue
                if topic == "metrics":
                    await self._tell(seen)
                elif self._seen.get(topic, seen) != seen:
                    self._hint(topic)
                self._seen[topic] = seen
            await asyncio.sleep(LOOK)

    async def _tell(self, seen: dict[str, Any]) -> None:
        """Numbers of now for every stream, and to each the points of its own charts."""
        told = [each for each in self._subscribers if "metrics" in each.topics]
        try:
            tails = await self._tails.read(asked for each in told for asked in each.asked)
        except Exception as error:  # as with any look; the numbers of now are told all the same
            log.debug("no points: %s", error)
            tails = {}
        for each in told:
            news = {**seen, "depths": self._depths_for(each, seen["depths"])}
            if each.chart is not None and each.chart in tails:
                news["series"] = tails[each.chart]
            if each.charts:
                news["charts"] = {name: tails[asked] for name, asked in each.charts.items() if asked in tails}
            each.hint("metrics", news)

    def _depths_for(self, subscriber: Subscriber, deepest: dict[str, Any]) -> dict[str, Any]:
        """The deepest queues, and each queue that a chart of this stream shows, whether or not it is among them."""
        shown = {asked.queue for asked in subscriber.asked if asked.queue is not None}
        others = [self._lying[queue] for queue in shown if queue in self._lying and queue not in deepest]
        return {**deepest, **{each.name: {state: getattr(each, state) for state in LYING} for each in others}}

    def _looks(self) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
        app = self._app
        found: list[Sequence[QueueView]] = []

        async def listed() -> Sequence[QueueView]:  # once for all topics of a round
            if not found:
                found.append(await app.queues.list())
            return found[0]

        async def queues() -> Any:
            return [
                (each.name, each.version, each.paused, *(getattr(each, state) for state in STATES))
                for each in await listed()
            ]

        async def jobs() -> Any:
            newest = await app.jobs.find("", limit=1)
            running = await app.jobs.find("state:running", limit=50)
            return await queues(), [job.id for job in (*newest.jobs, *running.jobs)]

        async def pods() -> Any:
            return [(each.id, each.state, each.leader, each.running, each.wish) for each in await app.pods.list()]

        async def schedules() -> Any:
            return [(each.name, each.version, each.fired, each.skipped) for each in await app.schedules.list()]

        async def limits() -> Any:
            return [(each.name, each.version, each.tokens) for each in await app.limits.list()]

        async def operations() -> Any:
            return [(each.id, each.version) for each in await app.operations.list(20)]

        async def failures() -> Any:
            return [(each.name, each.failed) for each in await listed()]

        async def metrics() -> Any:
            every = await listed()
            oldest = max((each.oldest_ready_seconds or 0.0 for each in every), default=0.0)
            totals = {state: sum(getattr(each, state) for each in every) for state in STATES}
            self._lying = {each.name: each for each in every}
            # Of thousands of queues the deepest: this goes to every stream, every two seconds.
            deep = heapq.nlargest(MOST_DEPTHS, every, key=lambda each: sum(getattr(each, state) for state in LYING))
            depth = {each.name: each.ready for each in deep}
            depths = {each.name: {state: getattr(each, state) for state in LYING} for each in deep}
            told = {"at": time.time(), **totals, "oldest_ready_seconds": oldest, "depth": depth, "depths": depths}
            return plain(told)

        looks = (jobs, queues, pods, schedules, limits, operations, failures, metrics)
        return [(each.__name__, each) for each in looks]


async def _itself(storage: Any) -> Any:
    return storage


async def _either(first: asyncio.Event, second: asyncio.Event, limit: float) -> bool:
    """Whether one of them was set in time."""
    tasks = [asyncio.ensure_future(each.wait()) for each in (first, second)]
    try:
        done, _ = await asyncio.wait(tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for each in tasks:
            each.cancel()


class EventStream(Response):
    """An answer that goes on until its source ends, its reader goes away or stops to read, or whoever opened it is not
    allowed to any more. It has a place, which `leave` gives back: a source that never began could not do so."""

    def __init__(
        self,
        source: AsyncIterator[bytes],
        leave: Callable[[], None] = lambda: None,
        is_still: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        super().__init__(media_type="text/event-stream")
        self.headers["X-Accel-Buffering"] = "no"
        del self.headers["content-length"]
        self._source = source
        self._leave = leave
        self._is_still = is_still

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await self._stream(receive, send)
        finally:
            self._leave()
            await _closed(self._source)

    async def _stream(self, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_gone(receive))
        refused = asyncio.ensure_future(self._refused())
        try:
            done, _ = await asyncio.wait((sending, gone, refused), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, gone, refused):
                task.cancel()
            await asyncio.gather(sending, gone, refused, return_exceptions=True)
        if refused in done and sending not in done:
            await self._break_off(send)

    async def _break_off(self, send: Send) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD):
                await send({"type": "http.response.body", "body": message("end", {}), "more_body": False})

    async def _refused(self) -> None:
        """Until whoever opened it is not allowed to any more."""
        if self._is_still is None:
            await asyncio.Event().wait()
            return
        while True:
            await asyncio.sleep(CHECKED)
            if not await self._is_still():
                return

    async def _send(self, send: Send) -> None:
        async for part in self._source:
            async with asyncio.timeout(SLOWEST_READER):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _closed(source: AsyncIterator[bytes]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()
