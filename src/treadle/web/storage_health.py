"""Whether the storage answers: noted in passing, by whatever is asked of it. A probe reads it and asks nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Final, cast

from ..core.errors import StorageUnavailable
from ..ports import Storage

RECENT: Final = 15.0


class StorageHealth:
    """Ready until the storage fails to answer, and again once it does. With nobody asking, the dashboard's own look
    (`treadle web` takes one every few seconds) keeps it up to date."""

    def __init__(self, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._clock = clock
        self._answered: float | None = None
        self._failed: float | None = None

    @property
    def is_ready(self) -> bool:
        if self._failed is None:
            return True
        return self._answered is not None and self._answered > self._failed

    def answered(self) -> None:
        self._answered = self._clock()

    def failed(self) -> None:
        self._failed = self._clock()

    def felt(self, storage: Storage) -> Storage:
        return cast("Storage", _Felt(storage, self))


class _Felt:
    def __init__(self, storage: Storage, pulse: StorageHealth) -> None:
        self._storage = storage
        self._pulse = pulse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not iscoroutinefunction(found):
            return found
        pulse = self._pulse

        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                answer = await found(*args, **kwargs)
            except StorageUnavailable:
                pulse.failed()
                raise
            pulse.answered()
            return answer

        return call
