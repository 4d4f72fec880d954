"""A user's own world: what the tutorial promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

import pytest

from treadle import AnswerStale, App, Conflict, Context, Retry, Wait
from treadle.core.job import Job
from treadle.testing.sabotage_answers import AnswerKeepsTheCharge
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


class Payments(World):
    """Its jobs wait for a provider, who answers late, twice, or not at all."""

    def declare(self, app: App) -> None:
        self.tokens: list[str] = []
        self.given: dict[str, int] = {}

        @app.task(name="pay", retry=Retry(max_attempts=1000, base=1.0, cap=5.0))
        async def pay(ctx: Context, order: int) -> int:
            if ctx.has_answer:
                return await ctx.answer()
            token = await ctx.answer_token("2m")
            self.tokens.append(token)
            await asyncio.sleep(1.0 + order)  # some answers are faster
            raise Wait(token)

        self.pay = pay

    async def client(self) -> None:
        await self.ask(*(self.pay.bind(order) for order in range(4)))
        answered = 0
        while answered < len(self.tokens) or self._alive_jobs():
            await asyncio.sleep(1.5)
            for token in self.tokens[answered:]:
                answered += 1
                if answered % 5:  # every fifth is forgotten
                    await self.insist(lambda token=token, n=answered: self._give(token, n))

    async def _give(self, token: str, number: int) -> None:
        for value in (number, number + 1000):
            try:
                if await self.app.answers.give(token, value) in ("won", "same"):
                    self.given[token] = value
                    assert value == number, "a second, different answer was taken"
            except (AnswerStale, Conflict):
                self.counts["refused_answer"] += 1

    def check(self, rows: Sequence[Job]) -> Iterable[str]:
        results = [int(job.result) for job in rows if job.result is not None]
        return [f"result {each} is nobody's answer" for each in results if each not in self.given.values()]


def test_jobs_that_wait_keep_the_promises_too() -> None:
    simulate(Payments, seeds=10)


def test_an_answer_that_keeps_the_charge_is_found() -> None:
    assert not all(Payments(seed, make_storage=AnswerKeepsTheCharge).run().passed for seed in range(5))


def test_a_world_of_ones_own_keeps_the_promises() -> None:
    simulate(Shop, seeds=5)


def test_what_a_check_finds_is_told_with_the_seed_and_how_to_run_it_again() -> None:
    with pytest.raises(AssertionError, match=r"(?s)seed 7 of Unhappy:.*never enough.*again: simulate\(Unhappy, 1, 7\)"):
        simulate(Unhappy, seeds=1, start=7)


def test_a_task_that_reaches_for_the_real_world_fails_and_says_so() -> None:
    world = Escaping(0)
    world.run()
    assert {job.errors[-1].type.rpartition(".")[2] for job in world.rows() if job.errors} == {"Escape"}
