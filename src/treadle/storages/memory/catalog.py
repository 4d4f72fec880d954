"""What pods have said of their tasks and queues, in the reference storage."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec.structs import replace

from ...core import catalog
from ...core.catalog import Entry
from ...core.pod import PodCard
from ...ports import Clock


class MemoryCatalog:
    _clock: Clock
    _lock: threading.RLock
    _catalog: dict[tuple[str, str], Entry]

    def _see(self, card: PodCard) -> None:
        """A pod has come: what it says of its tasks and queues is the last word."""
        for about, descriptor in card.about.items():
            if (found := catalog.parts(about)) is not None:
                kind, name = found
                self._catalog[found] = Entry(kind=kind, name=name, descriptor=descriptor, seen_at=self._clock.now())

    def _see_again(self, card: PodCard) -> None:
        """A pod goes: it was there until now. Its words are not heard again, a newer pod's may have come since."""
        for about in card.about:
            if (found := catalog.parts(about)) is not None and (entry := self._catalog.get(found)) is not None:
                self._catalog[found] = replace(entry, seen_at=self._clock.now())

    async def catalog(self) -> Sequence[Entry]:
        with self._lock:
            return [entry for _, entry in sorted(self._catalog.items())]
