"""Plain functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from typing import Any

import pytest

from treadle.executors.async_ import AsyncExecutor
from treadle.executors.thread import ThreadExecutor
from treadle.ports import Call

pytestmark = pytest.mark.anyio


def a_call(function: Any, *args: Any) -> Call:
    return Call(function, args, {})


async def test_a_function_runs_in_a_thread_of_the_pool() -> None:
    executor = ThreadExecutor(2)
    assert (await executor.run(a_call(lambda: threading.current_thread().name))).startswith("treadle-thread-")
    await executor.close()


async def test_context_variables_are_carried_over() -> None:
    word: contextvars.ContextVar[str] = contextvars.ContextVar("word")
    word.set("here")
    executor = ThreadExecutor(1)
    assert await executor.run(a_call(word.get)) == "here"
    await executor.close()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("x")])
async def test_whatever_is_raised_comes_back_and_the_thread_lives_on(error: BaseException) -> None:
    def fails() -> None:
        raise error

    executor = ThreadExecutor(1)
    with pytest.raises(type(error)):
        await executor.run(a_call(fails))
    assert await executor.run(a_call(lambda: 1)) == 1
    await executor.close()


async def test_a_place_is_taken_until_the_function_returns_even_if_nobody_waits_any_more() -> None:
    executor = ThreadExecutor(2)
    let_go = threading.Event()
    waiting = asyncio.create_task(executor.run(a_call(let_go.wait, 10)))
    await asyncio.sleep(0)
    assert executor.places() == 1
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert executor.places() == 1
    let_go.set()
    async with asyncio.timeout(5):
        while executor.places() != 2:
            await asyncio.sleep(0.001)
    await executor.close()


async def test_threads_are_started_as_they_are_needed_and_used_again() -> None:
    executor = ThreadExecutor(8)
    names = {await executor.run(a_call(lambda: threading.current_thread().name)) for _ in range(20)}
    assert len(names) == 1
    await executor.close()


def test_a_thread_that_never_returns_does_not_keep_the_interpreter() -> None:
    """ThreadPoolExecutor's threads are joined at exit; ours are daemons."""
    script = """
import asyncio, threading
from treadle.executors.thread import ThreadExecutor
from treadle.ports import Call
async def main():
    executor = ThreadExecutor(1)
    task = asyncio.create_task(executor.run(Call(threading.Event().wait, (), {})))
    await asyncio.sleep(0.05)
    task.cancel()
asyncio.run(main())
print("left")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "left\n"


async def test_coroutines_run_on_the_loop_as_many_as_there_are_slots() -> None:
    executor = AsyncExecutor()
    await executor.start()

    async def where() -> int:
        return threading.get_ident()

    assert executor.places() is None
    assert await executor.run(a_call(where)) == threading.get_ident()
    await executor.close()
