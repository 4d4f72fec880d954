"""A user's own world: what the tutorial promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

import pytest

from treadle import App
from treadle.core.job import Job
from treadle.testing.simulation import World, simulate


class Shop(World):
    def declare(self, app: App) -> None:
        @app.task(name="charge")
        async def charge(order: int) -> int:
            await asyncio.sleep(2.0)
            return order

        self.charge = charge

    async def client(self) -> None:
        await self.ask(*(self.charge.bind(order) for order in range(3)))


class Unhappy(Shop):
    def check(self, rows: Sequence[Job]) -> Iterable[str]:
        return [f"{len(rows)} jobs, and never enough"]


class Escaping(Shop):
    def declare(self, app: App) -> None:
        @app.task(name="charge")
        async def charge(order: int) -> None:
            time.sleep(1)

        self.charge = charge  # type: ignore[assignment]


def test_a_world_of_ones_own_keeps_the_promises() -> None:
    simulate(Shop, seeds=5)


def test_what_a_check_finds_is_told_with_the_seed_and_how_to_run_it_again() -> None:
    with pytest.raises(AssertionError, match=r"(?s)seed 7 of Unhappy:.*never enough.*again: simulate\(Unhappy, 1, 7\)"):
        simulate(Unhappy, seeds=1, start=7)


def test_a_task_that_reaches_for_the_real_world_fails_and_says_so() -> None:
    world = Escaping(0)
    world.run()
    assert {job.errors[-1].type.rpartition(".")[2] for job in world.rows() if job.errors} == {"Escape"}
