"""The app of the journeys. Its tasks write down what they do, one line a time, where no kill can take it back.

`JOURNEY_EFFECTS` names the file, `JOURNEY_GATES` the directory where a task looks for the gate that lets it go on.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

from treadle import App, Context, Registry, Retry, Wait

tasks = Registry()
newer_tasks = Registry()  # what only the newer half of a rolling deploy knows
quickly = Retry.fixed("50ms", max_attempts=5, jitter=0)

_effects: int | None = None


class Odd(BaseException):
    """Derives from BaseException only."""


@tasks.task(name="act", retry=quickly)
async def act(ctx: Context, what: str = "return", seconds: float = 0.0, gate: str = "", until_attempt: int = 99) -> str:
    """Act by the argument. Attempts after `until_attempt` just return."""
    note(ctx, "began")
    if ctx.attempt <= until_attempt:
        await _act(ctx, what, seconds, gate)
    note(ctx, "effect")
    return "x" * 200_000 if what == "big" else ""


@tasks.task(name="once", retry=1, timeout="60s")
async def once(ctx: Context) -> None:
    """Runs once, and until its worker dies."""
    note(ctx, "began")
    await _at_gate(ctx, "never")


async def _act(ctx: Context, what: str, seconds: float, gate: str) -> None:
    match what:
        case "return" | "big":
            pass
        case "sleep":
            await asyncio.sleep(seconds)
        case "gate":
            await _at_gate(ctx, gate)
        case "effect, then gate":
            note(ctx, "effect")
            await _at_gate(ctx, gate)
        case "deaf":
            while not is_open(gate):
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    note(ctx, "would not hear")
        case "block":
            time.sleep(seconds)
        case "block for ever":
            while not is_open(gate):
                time.sleep(0.01)
        case "os._exit":
            os._exit(1)
        case "kill -9":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sys.exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "odd":
            raise Odd("strange")
        case _:
            raise AssertionError(what)


@tasks.task(name="plain", retry=quickly)
def plain(ctx: Context, what: str = "return", gate: str = "") -> None:
    """The same in a thread, which nobody can cancel."""
    note(ctx, "began")
    match what:
        case "return":
            pass
        case "gate":
            while not is_open(gate):
                time.sleep(0.01)
        case "sys.exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case _:
            raise AssertionError(what)
    note(ctx, "effect")


@tasks.task(name="long", retry=quickly)
async def long(ctx: Context, items: int, every: float) -> str:
    """A long job that goes on behind its last checkpoint."""
    note(ctx, "began")
    async for n in ctx.iterate(range(items), every=every):
        note(ctx, f"item {n}")
        await ctx.progress(n + 1, items, f"item {n}")
        await asyncio.sleep(0.02)
    note(ctx, "effect")
    return ""


@tasks.task(name="ask", retry=quickly)
async def ask(ctx: Context, timeout: float = 60.0, gate: str = "") -> str:
    """Ask the driver, who finds the token among the effects."""
    note(ctx, "began")
    if not ctx.has_answer:
        token = await ctx.answer_token(timeout)
        note(ctx, f"token {token}")
        if gate:
            await _at_gate(ctx, gate)
        raise Wait(token)
    note(ctx, "effect")
    return str(await ctx.answer())


@newer_tasks.task(name="newer", retry=quickly)
async def newer(ctx: Context) -> None:
    note(ctx, "began")
    note(ctx, "effect")


async def _at_gate(ctx: Context, gate: str) -> None:
    """Until the gate is open, for all or for this attempt."""
    while not (is_open(gate) or is_open(f"{gate}.{ctx.attempt}")):
        await asyncio.sleep(0.01)


def is_open(gate: str) -> bool:
    return Path(os.environ["JOURNEY_GATES"], gate).exists()


def note(ctx: Context, what: str) -> None:
    """One line, by one write to a file opened for appending: whole or not at all, in the order of the writes."""
    global _effects
    if _effects is None:
        _effects = os.open(os.environ["JOURNEY_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    line = {
        "what": what,
        "task": ctx.task,
        "id": ctx.job_id,
        "attempt": ctx.attempt,
        "token": ctx.token,
        "pid": os.getpid(),
        "at": time.monotonic(),
    }
    os.write(_effects, json.dumps(line).encode() + b"\n")


app = App()
app.include(tasks)

newer_app = App()
newer_app.include(tasks)
newer_app.include(newer_tasks)
