"""What would run in child processes, run here: for tests, where a child would know nothing of their clock and mocks."""

from __future__ import annotations

import inspect
from typing import Any

from ..ports import Call
from .thread import ThreadExecutor


class InlineExecutor:
    """Coroutines on the loop, plain functions in a thread. No limits, and no protection from crashes."""

    name = "process"
    cancels = True
    asks = False

    def __init__(self, size: int) -> None:
        self._threads = ThreadExecutor(size)

    def places(self) -> int | None:
        return self._threads.places()

    async def start(self) -> None:
        await self._threads.start()

    async def run(self, call: Call) -> Any:
        if inspect.iscoroutinefunction(call.function):
            return await call.function(*call.args, **call.kwargs)
        return await self._threads.run(call)

    async def close(self) -> None:
        await self._threads.close()
