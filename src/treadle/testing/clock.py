"""A clock that stands still until a test moves it."""

from __future__ import annotations

from typing import Final

# 2023-11-14T22:13:20Z. Far from zero, so that a test notices a storage which mixes wall time with steady time.
BEGINNING: Final = 1_700_000_000.0


class FakeClock:
    """A `ports.Clock` in a test's hand: wall time and steady time move only when told to."""

    def __init__(self, now: float = BEGINNING) -> None:
        self._now = now
        self._steady = 1_000.0
        self._boots = 1

    def now(self) -> float:
        return self._now

    def steady(self) -> float:
        return self._steady

    def boot(self) -> str:
        return f"boot-{self._boots}"

    def advance(self, seconds: float) -> None:
        """Time passes, for everything."""
        if seconds < 0:
            raise ValueError(f"time does not go back (advance {seconds}): step_wall sets the wall clock wrong")
        self._now += seconds
        self._steady += seconds

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock, forwards or back; no time passes."""
        self._now += seconds

    def reboot(self) -> None:
        """The machine starts again: steady time begins anew, under another name."""
        self._steady = 1.0
        self._boots += 1
