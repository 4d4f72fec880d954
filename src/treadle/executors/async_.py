"""Coroutines, on the pod's own loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ..ports import Call


class AsyncExecutor:
    name = "async"
    cancels = True
    asks = False

    def places(self) -> int | None:
        return None

    async def start(self) -> None:
        pass

    def run(self, call: Call) -> Coroutine[Any, Any, Any]:
        # The function's own coroutine: one around it would cost as much again as a short job does.
        coroutine: Coroutine[Any, Any, Any] = call.function(*call.args, **call.kwargs)
        return coroutine

    async def close(self) -> None:
        pass
