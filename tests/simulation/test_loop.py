"""The simulated loop: virtual time, one choice point, hosts that crash and pause, and no way out."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import treadle
from treadle.testing.simulation.escapes import sealed
from treadle.testing.simulation.loop import HOST, Deadlock, Escape, Host, Livelock, SimLoop


def a_loop(seed: str = "0", **options: int) -> SimLoop:
    return SimLoop(seed, **options)  # type: ignore[abstract]


def on(loop: SimLoop, host: Host, work: object) -> asyncio.Task[object]:
    context = contextvars.copy_context()
    context.run(HOST.set, host)
    return loop.create_task(work, context=context)  # type: ignore[arg-type]


def test_time_is_virtual_and_moves_only_when_nothing_is_ready() -> None:
    loop = a_loop()

    async def live() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    begun = time.perf_counter()
    assert loop.run_until_complete(live()) == 3600
    assert time.perf_counter() - begun < 1


def test_a_deadlock_and_a_livelock_are_errors_and_never_hang() -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Deadlock):
        a_loop().run_until_complete(wait_for_ever())
    with pytest.raises(Livelock):
        a_loop(budget=1000).run_until_complete(spin())


def test_a_crash_runs_no_finally_and_a_pause_holds() -> None:
    loop, dead, held = a_loop(), Host("dead", 1), Host("held", 2)
    seen: list[tuple[str, float]] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(10)
            seen.append((name, loop.now))
        finally:
            seen.append((f"{name} ends", loop.now))

    async def live() -> None:
        on(loop, dead, work("dead"))
        on(loop, held, work("held"))
        await asyncio.sleep(5)
        loop.crash(dead)
        loop.pause(held, 60)
        await asyncio.sleep(100)

    loop.run_until_complete(live())
    assert seen == [("held", 65.0), ("held ends", 65.0)]
    loop.close()


def test_inside_a_host_callbacks_keep_their_order_and_between_hosts_any_order_is_found() -> None:
    orders: set[tuple[str, ...]] = set()
    for seed in range(20):
        loop, seen = a_loop(str(seed)), list[str]()

        async def live(loop: SimLoop = loop, seen: list[str] = seen) -> None:
            for number in (1, 2):
                host, context = Host(str(number), number), contextvars.copy_context()
                context.run(HOST.set, host)
                for step in "ab":
                    loop.call_soon(seen.append, f"{number}{step}", context=context)
            await asyncio.sleep(1)

        loop.run_until_complete(live())
        assert [each for each in seen if each[0] == "1"] == ["1a", "1b"]
        assert [each for each in seen if each[0] == "2"] == ["2a", "2b"]
        orders.add(tuple(seen))
    assert len(orders) > 3


def test_nothing_escapes() -> None:
    loop = a_loop()
    with sealed(loop, "0"):
        for reach in (lambda: time.sleep(1), socket.socket, lambda: threading.Thread().start()):
            with pytest.raises(Escape):
                reach()
        assert os.urandom(4) != b""
        assert time.monotonic() == 1_000.0
    assert time.monotonic() != 1_000.0


@pytest.mark.parametrize("seed", [1, 7])
def test_a_seed_leaves_the_same_trace_whatever_the_hash_seed(seed: int) -> None:
    script = f"from treadle.testing.simulation import Mill; print(Mill({seed}).run().digest)"
    traces = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hashes in ("0", "1", "2")
    }
    assert len(traces) == 1


def test_no_clock_is_bound_before_the_simulation_can_replace_it() -> None:
    """`def f(clock=time.monotonic)` keeps the real clock for ever: two of them made a seed run anew each time."""
    source = Path(treadle.__file__).parent
    bound: list[str] = []
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for default in [*node.args.defaults, *node.args.kw_defaults]:
                    if isinstance(default, ast.Attribute) and ast.unparse(default.value) in (
                        "time",
                        "random",
                        "secrets",
                    ):
                        bound.append(f"{path.relative_to(source)}:{node.lineno}")
    assert bound == []
