"""Waiting for a job on a terminal: the task's own progress, as a bar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ..core.text import visible
from .command import Invocation

if TYPE_CHECKING:
    from ..app import App

EVERY: Final = 0.5


@asynccontextmanager
async def bar_of(call: Invocation, app: App, id: str) -> AsyncGenerator[None]:
    """Show how far a job comes while somebody waits for it, if anybody can see that."""
    if not call.out.shows_progress:
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("", total=None)

        def show(done: float, total: float | None, words: str) -> None:
            bar.update(shown, completed=done, total=total, description=words)

        watching = asyncio.create_task(watch(app, id, show))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def watch(app: App, id: str, show: Callable[[float, float | None, str], None]) -> None:
    """Tell how far a job has come, again and again: (done, total, words)."""
    while True:
        job = await app.jobs.get(id)
        said = job.progress
        if said is None:
            show(0.0, None, job.state)
        else:
            show(said.done, said.total, visible(said.note) or job.state)
        await asyncio.sleep(EVERY)
