"""How a worker process runs Python: which event loop, and how often the garbage collector looks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

from ..core.errors import MissingExtra

# A pod makes tens of thousands of objects a second and frees nearly all of them by reference count. At Python's 700 the
# collector walks the young ones forty times a second for nothing (measured: a tenth of a worker's time).
GC_THRESHOLDS: Final = (20_000, 20, 20)


def calm_collector() -> None:
    """Called once everything is imported: what is there stays, and need not be looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def maker(choice: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """The event loop of the worker process. `auto`: uvloop where it is installed, else Python's own."""
    if choice == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError as missing:
        if choice == "uvloop":
            raise MissingExtra('loop = "uvloop"', "uvloop", "uvloop") from missing
        return asyncio.new_event_loop
    return uvloop.new_event_loop
