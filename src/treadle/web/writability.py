"""Whether anything can be changed from here: as it was chosen, and as the storage finds.

A dashboard on a standby, or on a file that this user may not write, is for reading only, and says so; once the standby
is promoted it is not. The storage is asked at most every five seconds and never by a request itself, but for the very
first: what it said last is what counts. The server checks again where it is written, so a late word harms nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..app import App

LOOK: Final = 5.0
FIRST: Final = 2.0  # what the first request waits for the answer


class Writability:
    def __init__(self, app: App, *, chosen: bool, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._app = app
        self._clock = clock
        self._asked: float | None = None
        self._looking: asyncio.Task[Any] | None = None
        self.chosen: Final = chosen
        self.found = False  # the storage cannot be written

    @property
    def is_read_only(self) -> bool:
        return self.chosen or self.found

    @property
    def stands_by(self) -> bool:
        """It was not chosen: the storage itself is to blame."""
        return self.found and not self.chosen

    async def look(self) -> None:
        """Ask now. Whatever goes wrong is nothing new: what was true is still the best there is."""
        self._asked = self._clock()
        with suppress(Exception):
            self.found = not await self._app.client.ask(lambda storage: storage.is_writable(), ())

    async def keep_up(self) -> None:
        """Before a request: asked in passing, if it is time."""
        if self.chosen or (self._asked is not None and self._clock() - self._asked < LOOK):
            return
        is_first = self._asked is None
        self._asked = self._clock()
        self._looking = asyncio.ensure_future(self.look())
        if is_first:
            await asyncio.wait((self._looking,), timeout=FIRST)

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
