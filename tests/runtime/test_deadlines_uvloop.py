"""Deadlines on uvloop, whose handle for what is due at once does not know when it is due."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import uvloop

from treadle import App, Retry

from .conftest import QUICK


def test_deadlines_that_are_due_at_once_stop_their_runs_on_uvloop() -> None:
    """Found by a soak: the second deadline within a millisecond was compared with the first one's handle, which has no
    `when`, and from then on no run of the pod was stopped at its deadline."""
    failures: list[dict[str, Any]] = []

    async def main() -> list[str]:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        app = App("memory://", timing=dataclasses.replace(QUICK, overdue=60.0))  # no second line of defence

        @app.task(name="long", retry=Retry(max_attempts=1))
        async def long() -> None:
            await asyncio.sleep(60)

        async with app:
            handles = [await long.using(timeout=timeout).enqueue() for timeout in (0.0004, 0.0003, 0.0002, 0.01)]
            async with asyncio.timeout(5), app.worker(queues={"default": 4}):
                while len([each for each in [await app.jobs.get(h.id) for h in handles] if each.finished_at]) < 4:
                    await asyncio.sleep(0.01)
            return [(await app.jobs.get(handle.id)).state for handle in handles]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == ["failed"] * 4
    assert failures == []
