"""Coroutines, on the pod's own loop."""

from __future__ import annotations

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

    async def run(self, call: Call) -> Any:
        return await call.function(*call.args, **call.kwargs)

    async def close(self) -> None:
        pass
