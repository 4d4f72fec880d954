"""Counts for pages: capped, and asked at most once in two seconds, however many pages want them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from ..app import App
    from ..core.counted import Counted

T = TypeVar("T")

FRESH: Final = 2.0
CAP: Final = 10_000
MOST_KEPT: Final = 200


class Counts:
    """`await web.counts.jobs("state:failed")` → {"ready": 0, …}. Who asks while another does waits for that answer."""

    def __init__(self, app: App, *, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._app = app
        self._clock = clock
        self._kept: dict[tuple[str, ...], tuple[float, Any]] = {}
        self._asked: dict[tuple[str, ...], asyncio.Task[Any]] = {}

    async def jobs(self, filter_text: str = "") -> Counted[str]:
        return await self.get(("jobs", filter_text), lambda: self._app.jobs.count(filter_text, cap=CAP))

    async def get(self, key: tuple[str, ...], ask: Callable[[], Awaitable[T]], *, fresh: float = FRESH) -> T:
        """Any answer that may be two seconds old, or as old as is said."""
        kept = self._kept.get(key)
        if kept is not None and self._clock() - kept[0] < fresh:
            return cast("T", kept[1])
        own = (*key, str(id(asyncio.get_running_loop())))
        task = self._asked.get(own)
        if task is None:
            task = self._asked[own] = asyncio.ensure_future(self._ask(key, ask))
            task.add_done_callback(lambda _: self._asked.pop(own, None))
        # Shielded: one that goes away must not take the answer from the others.
        return await asyncio.shield(task)

    async def quickly(
        self, key: tuple[str, ...], ask: Callable[[], Awaitable[T]], *, within: float, fresh: float = FRESH
    ) -> T | None:
        """The same, if it is there in time; else None, and whoever looks next may have it."""
        asking = asyncio.ensure_future(self.get(key, ask, fresh=fresh))
        done, _ = await asyncio.wait({asking}, timeout=within)
        if not done:
            asking.add_done_callback(lambda late: late.cancelled() or late.exception())
            return None
        return asking.result()

    def forget(self) -> None:
        """Somebody has changed something here: whoever did so must see it at once."""
        self._kept.clear()

    async def _ask(self, key: tuple[str, ...], ask: Callable[[], Awaitable[T]]) -> T:
        answer = await ask()
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = (self._clock(), answer)
        return answer
