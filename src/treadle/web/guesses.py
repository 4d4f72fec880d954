"""Guesses: whoever is wrong ten times in a minute has to wait. By the address that a request comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import Request

from .problem import Problem

MOST: Final = 10
WINDOW: Final = 60.0
MOST_ADDRESSES: Final = 10_000


class Guesses:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: dict[str, list[float]] = {}

    def check(self, request: Request) -> None:
        """Problem, if this address has to wait. Before anything is compared: also a right word waits."""
        address, begin = _address(request), self._clock() - WINDOW
        recent = [at for at in self._times.get(address, ()) if at > begin]
        if len(recent) >= MOST:
            wait = str(max(1, round(recent[0] + WINDOW - self._clock())))
            raise Problem("rate_limited", "too many wrong tries: wait a minute", headers={"Retry-After": wait})
        if address in self._times:
            self._times[address] = recent

    def note(self, request: Request) -> None:
        """One was wrong."""
        if len(self._times) >= MOST_ADDRESSES:
            begin = self._clock() - WINDOW
            self._times = {key: times for key, times in self._times.items() if times and times[-1] > begin}
            if len(self._times) >= MOST_ADDRESSES:
                self._times.pop(next(iter(self._times)))
        self._times.setdefault(_address(request), []).append(self._clock())


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
