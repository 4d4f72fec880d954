"""Timed: a storage that measures itself. Every verb goes through to the storage behind it; how long it took, whether it
failed, and when anything was last answered is noted on the way. It costs about a microsecond a call, and a call serves
a whole turn."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Final, cast

from ..core.histogram import Histogram
from ..ports import Storage

WRITES: Final = frozenset(
    {"insert", "claim", "apply", "beat", "lead", "roll_up", "record", "take", "fire", "advance", "prune", "sweep"}
    | {"open_answer", "answer", "beat_answer"}
)


class Timed:
    """`Timed(storage).storage` is used in the place of the storage."""

    def __init__(self, storage: Storage) -> None:
        self.seconds: dict[str, Histogram] = {}  # by verb
        self.errors: Counter[str] = Counter()
        self.answered = time.monotonic()
        self.storage = cast("Storage", _Proxy(storage, self))

    @property
    def age(self) -> float:
        """How long ago the storage last answered."""
        return time.monotonic() - self.answered

    def mean(self, since: dict[str, tuple[int, float]], *, writes: bool) -> float | None:
        """What a call has taken on average since `marks` were taken."""
        count, total = 0, 0.0
        for verb, times in list(self.seconds.items()):
            if (verb in WRITES) is writes:
                before, summed = since.get(verb, (0, 0.0))
                count += times.count - before
                total += times.sum - summed
        return total / count if count > 0 else None

    def marks(self) -> dict[str, tuple[int, float]]:
        return {verb: (times.count, times.sum) for verb, times in list(self.seconds.items())}


class _Proxy:
    """What is no verb (capabilities, `listen`, `signals_work`) is read where it is, every time."""

    def __init__(self, storage: Storage, timed: Timed) -> None:
        self._storage = storage
        self._timed = timed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not iscoroutinefunction(found):
            return found
        verb = _verb(self._storage, name, self._timed)
        self.__dict__[name] = verb
        return verb


def _verb(storage: Storage, name: str, timed: Timed) -> Callable[..., Any]:
    times = timed.seconds.setdefault(name, Histogram())
    clock = time.perf_counter

    async def call(*args: Any, **kwargs: Any) -> Any:
        begun = clock()
        try:
            answer = await getattr(storage, name)(*args, **kwargs)
        except Exception:
            timed.errors[name] += 1
            raise
        finally:
            times.add(clock() - begun)
        timed.answered = time.monotonic()
        return answer

    return call
