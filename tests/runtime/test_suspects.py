"""Suspects: who runs alone, who waits, and what becomes of a pod with runs that nobody can end."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from treadle import App
from treadle.core.job import Job, State
from treadle.executors.async_ import AsyncExecutor
from treadle.runtime.roster import Roster
from treadle.runtime.run import Run
from treadle.runtime.suspects import Suspects

app = App("memory://")


@app.task(name="here")
async def here() -> None: ...


@app.task(name="elsewhere", executor="process")
def elsewhere() -> None: ...


class Isolation(AsyncExecutor):
    name = "isolation"
    size = 2
    is_possible = True
    busy = 0
    wanted = 0

    def ready(self, wanted: int) -> int:
        self.wanted = wanted
        return self.size - self.busy


class World:
    def __init__(self, isolation: Isolation | None) -> None:
        self.isolation = isolation
        self.executors: Mapping[str, Any] = {"async": AsyncExecutor()}
        self.roster = Roster({"q": 9}, self.executors, {"async": frozenset({"here"})})
        self.returned: dict[str, float] = {}
        self.suspects = Suspects(
            isolation,
            self.roster,
            find=app.find,
            give_back=lambda job, delay: self.returned.__setitem__(job.id, delay),
            chance=random.Random(1),
        )

    def runs(self, job: Job, *, alone: bool = False) -> None:
        executor = self.isolation if alone else self.executors["async"]
        assert executor is not None
        self.roster.add(Run(job, here, executor, 1, 0.0))

    def apart(self, *jobs: Job) -> tuple[list[str], list[str]]:
        started, alone = self.suspects.apart(jobs)
        return [job.id for job in started], sorted(alone & {job.id for job in started})


def a_job(id: str, crashes: int = 0, task: str = "here") -> Job:
    return Job(id=id, task=task, queue="q", state=State.RUNNING, token=id, crashes=crashes)


def test_who_has_never_crashed_just_starts() -> None:
    world = World(Isolation())
    assert world.apart(a_job("a"), a_job("b")) == (["a", "b"], [])


def test_R48_who_has_crashed_once_runs_alone_and_the_others_start_beside() -> None:
    world = World(Isolation())
    assert world.apart(a_job("a"), a_job("b", 1), a_job("c", 2)) == (["a", "b", "c"], ["b", "c"])
    assert world.returned == {}


def test_who_finds_no_place_is_given_back_for_a_while() -> None:
    world = World(isolation := Isolation())
    world.runs(a_job("x", 1), alone=True)  # promised, though it has not begun
    assert world.apart(a_job("a"), a_job("b", 1), a_job("c", 1), a_job("d", 2)) == (["a", "b"], ["b"])
    assert isolation.wanted == 4
    assert world.returned.keys() == {"c", "d"}
    assert all(0.5 <= delay <= 3.0 for delay in world.returned.values())


def test_the_more_wait_the_longer_they_wait() -> None:
    world = World(Isolation())
    world.apart(*(a_job(str(n), 1) for n in range(402)))
    assert 2.5 <= min(world.returned.values()) <= max(world.returned.values()) <= 7.5


def test_what_runs_elsewhere_anyway_needs_no_place() -> None:
    world = World(Isolation())
    assert world.apart(a_job("a", 2, "elsewhere"), a_job("b", 1)) == (["a", "b"], ["b"])


@pytest.mark.parametrize("how", ["no isolation", "not possible"])
def test_without_isolation_one_in_danger_runs_at_a_time(how: str) -> None:
    isolation = None if how == "no isolation" else Isolation()
    if isolation is not None:
        isolation.is_possible = False
    world = World(isolation)
    assert world.apart(a_job("a", 1), a_job("b", 1)) == (["a", "b"], [])
    assert world.apart(a_job("c", 2)) == (["c"], [])
    assert world.apart(a_job("d", 2), a_job("e", 2), a_job("f", 1)) == (["f"], [])
    world.returned.clear()
    world.runs(a_job("g", 2))
    assert world.apart(a_job("h", 2), a_job("i")) == (["i"], [])
    assert world.returned.keys() == {"h"}
