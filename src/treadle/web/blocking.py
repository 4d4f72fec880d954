"""Who locks the storage: asked after a request was not answered in time, and never before.

Of many requests that wait for the same lock one asks, and the others are given its answer: it holds for two seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ..core.blocker import Blocker, sentence

if TYPE_CHECKING:
    from ..app import App

HOLDS: Final = 2.0
PATIENCE: Final = 3.0


class Blocking:
    def __init__(self, app: App, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._app = app
        self._clock = clock
        self._asked = -HOLDS
        self._asking: asyncio.Task[Sequence[Blocker]] | None = None

    async def said(self, *, reads: bool) -> str:
        """Who locks what, and the command that ends it; empty where nobody is known to. A request that reads is stopped
        by few locks: the others are none of its troubles."""
        found = await self._ask()
        return sentence([each for each in found if not reads or each.stops == "reads"])

    async def _ask(self) -> Sequence[Blocker]:
        if self._asking is None or (self._asking.done() and self._clock() - self._asked >= HOLDS):
            self._asking = asyncio.ensure_future(self._look())
        return await asyncio.shield(self._asking)

    async def _look(self) -> Sequence[Blocker]:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._app.storage.blockers()
        except TimeoutError:
            return ()
        finally:
            self._asked = self._clock()
