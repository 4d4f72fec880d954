"""Runs that share an asyncio task, and why none of them can tell."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any
from weakref import ref

import pytest

from treadle.core.job import Job, State
from treadle.runtime import relay, vitals
from treadle.runtime.relay import Relay
from treadle.runtime.run import Run
from treadle.tasks.task import Task

from .conftest import ONCE, World

pytestmark = pytest.mark.anyio

MARK: ContextVar[str] = ContextVar("mark", default="nobody's")


class Line:
    """A pod of one queue, and jobs that are all there when it starts: one claim brings them, in order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tasks: list[asyncio.Task[Any]] = []
        self.numbers: list[int] = []  # of the tasks, in the order of the runs

    def note(self) -> asyncio.Task[Any]:
        """Notes whose turn it is by the task's name: to keep the task itself would change what is tested."""
        current = asyncio.current_task()
        assert current is not None
        self.numbers.append(int(current.get_name().removeprefix("Task-")))
        return current

    async def run(self, task: Task[..., Any], *kinds: str) -> list[Job]:
        handles = await self.world.client.enqueue_many([task.bind(kind) for kind in kinds])
        async with self.world.pod(slots=50):
            return [await self.world.wait_for(each.id, State.SUCCEEDED, State.FAILED) for each in handles]


@pytest.fixture
async def line(world: World) -> Line:
    return Line(world)


async def test_runs_that_never_wait_share_a_task(line: Line) -> None:
    @line.world.registry.task(name="short")
    async def short(kind: str) -> None:
        line.note()

    await line.run(short, *["plain"] * 20)
    assert len(line.numbers) == 20
    assert len(set(line.numbers)) == 1


async def test_a_run_that_waits_keeps_its_task_and_holds_nobody_up(line: Line) -> None:
    arrived = asyncio.Event()

    @line.world.registry.task(name="mixed")
    async def mixed(kind: str) -> bool:
        current = line.note()
        if kind == "waits":
            await arrived.wait()  # for the one behind it in line
        elif kind == "last":
            arrived.set()
        return current is asyncio.current_task()

    jobs = await line.run(mixed, "plain", "waits", "plain", "last")
    assert [job.result for job in jobs] == ["true"] * 4
    first, waits, third, last = line.numbers
    assert first == waits  # it had been the first one's, who was through with it
    assert third == last != waits


async def test_what_a_run_sets_in_its_context_nobody_else_sees(line: Line) -> None:
    @line.world.registry.task(name="marks")
    async def marks(kind: str) -> list[str]:
        before = MARK.get()
        MARK.set(kind)
        if kind == "waits":
            await asyncio.sleep(0)
            await asyncio.sleep(0.01)
        return [before, MARK.get()]

    jobs = await line.run(marks, "one", "waits", "two", "three")
    assert [job.result for job in jobs] == [f'["nobody\'s","{kind}"]' for kind in ("one", "waits", "two", "three")]


async def test_a_task_that_somebody_keeps_begins_no_other_run(line: Line) -> None:
    """Whoever keeps it may cancel it later: a stranger's run would be hit."""
    kept: list[asyncio.Task[Any]] = []
    weak: Any = None

    @line.world.registry.task(name="keeps")
    async def keeps(kind: str) -> None:
        nonlocal weak
        current = line.note()
        if kind == "keeps":
            kept.append(current)
        elif kind == "weakly":
            weak = ref(current)
        elif kind == "victim":
            kept[0].cancel()
            await asyncio.sleep(0.01)

    jobs = await line.run(keeps, "keeps", "weakly", "plain", "victim")
    assert [job.state for job in jobs] == [State.SUCCEEDED] * 4
    keeper, weakly, plain, victim = line.numbers
    assert len({keeper, weakly, plain}) == 3
    assert plain == victim


async def test_a_run_that_cancels_its_own_task_takes_nobody_with_it(line: Line) -> None:
    @line.world.registry.task(name="cancels", retry=ONCE)
    async def cancels(kind: str) -> None:
        current = line.note()
        if kind == "cancels":
            current.cancel()
        else:
            await asyncio.sleep(0)

    jobs = await line.run(cancels, "cancels", "plain", "plain")
    assert [job.state for job in jobs] == [State.SUCCEEDED] * 3
    assert line.numbers[0] not in line.numbers[1:]


async def test_a_long_line_lets_the_loop_go_round(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has ended is written, and what else the loop has to do is done, before the line is at its end."""
    monkeypatch.setattr(relay, "SLICE", 0.0)
    seen: list[int] = []  # how many had begun when the loop came to what the first, the second … had asked of it

    @line.world.registry.task(name="counts")
    async def counts(kind: str) -> None:
        asyncio.get_running_loop().call_soon(lambda: seen.append(len(line.numbers)))
        line.note()

    await line.run(counts, *["plain"] * 5)
    assert seen == [1, 2, 3, 4, 5]


async def test_where_a_run_waits_can_be_seen(line: Line) -> None:
    @line.world.registry.task(name="stands")
    async def stands(kind: str) -> None:
        await line.world.release.wait()

    handle = await line.world.client.enqueue(stands.bind(""))
    async with line.world.pod():
        await line.world.wait_for(handle.id, State.RUNNING)
        await asyncio.sleep(0.01)
        assert ", in stands" in vitals.stacks(asyncio.get_running_loop(), 0)


async def test_what_was_given_back_while_it_stood_in_line_does_not_begin(world: World) -> None:
    begun: list[str] = []

    class Executor:
        name, cancels, asks = "async", True, False

        async def run(self, call: Any) -> None:
            begun.append(call.job.id)

    ended: list[str] = []
    line = Relay(lambda run, outcome: ended.append(run.job.id))
    for id in ("one", "two"):
        job = Job(id=id, task="act", queue="default", state=State.RUNNING, args='{"what":"return"}')
        run = Run(job, world.act, Executor(), 1, 0.0)  # type: ignore[arg-type]
        line.add(run, None)
    run.done = True
    await asyncio.sleep(0.01)
    assert begun == ended == ["one"]
