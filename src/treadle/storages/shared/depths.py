"""Depths: how much lies where there is much of it, without counting all of it every time.

Exact numbers of ready and scheduled jobs cost a walk over their index: 80 ms for half a million. Small ones are counted
whenever somebody asks. Large ones are remembered, and each time only some of them are counted anew, the oldest first;
none is older than ten seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

LARGE: Final = 500
FRESH: Final = 2.0
OLDEST: Final = 10.0


class Depths(Generic[Key]):
    """`at_once`: so many jobs may be counted anew each time. Instants are of a steady clock."""

    def __init__(self, at_once: int = 100_000) -> None:
        self._at_once = at_once
        self._kept: dict[Key, tuple[float, int, int]] = {}
        self._lock = threading.Lock()

    def split(self, keys: Sequence[Key], now: float) -> tuple[list[Key], dict[Key, tuple[int, int]]]:
        """What has to be counted now; and what is known of the others."""
        with self._lock:
            kept = {key: self._kept[key] for key in keys if key in self._kept}
            left = self._at_once
            anew: set[Key] = set()
            for key, (at, due, later) in sorted(kept.items(), key=lambda item: item[1][0]):
                is_overdue = not 0 <= now - at < OLDEST
                if is_overdue or (now - at >= FRESH and left > 0):
                    anew.add(key)
                    left -= due + later
            known = {key: (due, later) for key, (_, due, later) in kept.items() if key not in anew}
            return [key for key in keys if key not in known], known

    def keep(self, key: Key, due: int, later: int, now: float) -> None:
        with self._lock:
            if due + later >= LARGE:
                self._kept[key] = (now, due, later)
            else:
                self._kept.pop(key, None)
