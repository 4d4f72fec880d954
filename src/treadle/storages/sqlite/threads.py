"""A thread for one slow call of an event loop, without the loop's own pool: opening, closing, looking at lock files."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run(call: Callable[[], T]) -> T:
    """What the call answers. It is carried through even if the caller is cancelled meanwhile."""
    pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="treadle-sqlite-once")
    future = asyncio.wrap_future(pool.submit(call))
    pool.shutdown(wait=False)
    return await asyncio.shield(future)
