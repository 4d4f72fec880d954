"""The app of a soak. Its tasks and its storage write down what happened, one line a time, where no kill takes it back.

`SOAK_HISTORY` names the file. A worker can be killed between a commit and its line about it: a line that is there is
true, one that is missing says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle import App, Cancel, Context, Fail, Registry, Retry, RetryAfter, Snooze
from treadle.core.job import Change, State
from treadle.testing.history import Event

tasks = Registry()
often = Retry.fixed("100ms", max_attempts=12, jitter=0)

_encode = msgspec.json.Encoder().encode
_file: int | None = None


def note(kind: str, **fields: Any) -> None:
    """One line, by one write to a file opened for appending: whole or not at all, in the order of the writes."""
    global _file
    if _file is None:
        _file = os.open(os.environ["SOAK_HISTORY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(_file, _encode(Event(kind=kind, at=right_now(), **fields)) + b"\n")


def write_to(file: str) -> None:
    """In the driver, which may run one campaign after the other."""
    global _file
    if _file is not None:
        os.close(_file)
        _file = None
    os.environ["SOAK_HISTORY"] = file


def right_now() -> float:
    """By the host's clock, also where `time.time` is wrong on purpose."""
    return time.clock_gettime(time.CLOCK_REALTIME)


def child_of(parent: str) -> str:
    """The id of the job that follows this one."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, parent))


@tasks.task(name="work", retry=often, timeout="6s")
async def work(ctx: Context[Any], kind: str = "ok", n: int = 0, seconds: float = 0.0) -> str:
    """Act by the argument. Attempts after the n-th just return."""
    await asyncio.sleep(seconds)
    if ctx.attempt <= n:
        await _misbehave(kind)
    match kind:
        case "fail":
            raise Fail("for good")
        case "cancel":
            raise Cancel("not needed")
        case "follow":
            ctx.follow(work.using(id=child_of(ctx.job_id)).bind("child"))
        case _:
            pass
    note("effect", id=ctx.job_id, token=ctx.token)
    return ""


async def _misbehave(kind: str) -> None:
    match kind:
        case "flaky":
            raise ValueError("not yet")
        case "later":
            raise RetryAfter("300ms")
        case "snooze" if random.random() < 0.7:  # it costs no attempt
            raise Snooze("300ms")
        case "hang":
            await asyncio.sleep(1e6)
        case "stubborn":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(8)
            await asyncio.sleep(1)
        case "poison":
            note("fault", how="poisoned", pod=str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass


@tasks.task(name="fenced", retry=often, timeout="20s")
def fenced(ctx: Context[Any], seconds: float = 0.0) -> None:
    """In a thread; its effect is written only if its token is current, in the transaction that looks."""
    time.sleep(seconds)
    _write_fenced(ctx.job_id, ctx.token)
    note("effect", id=ctx.job_id, token=ctx.token)


def _write_fenced(id: str, token: str) -> None:
    place = os.environ["SOAK_FENCED"]
    if place.startswith("postgresql:"):
        import psycopg

        schema = os.environ["TREADLE_SCHEMA"]
        with psycopg.connect(place, connect_timeout=5) as db:
            db.execute(  # type: ignore[call-overload]
                f"insert into {schema}.soak_fenced (id, token) "
                f"select id::text, token from {schema}.job "
                "where id = %s::uuid and token = %s and state = 'running' for share "
                "on conflict (id) do update set token = excluded.token",
                (id, token),
            )
        return
    with contextlib.closing(sqlite3.connect(place, isolation_level=None, timeout=10)) as db:
        db.execute("pragma wal_autocheckpoint = 0")
        db.execute("begin immediate")
        db.execute(
            "insert into soak_fenced (id, token) select id, token from treadle_job "
            "where id = ? and token = ? and state = 'running' on conflict (id) do update set token = excluded.token",
            (id, token),
        )
        db.execute("commit")


# What the pod hears ---------------------------------------------------------------------------------------------------


def _listening(apply: Callable[..., Any]) -> Callable[..., Any]:
    async def listened(self: Any, changes: Sequence[Any]) -> Any:
        answers = await apply(self, changes)
        for change, answer in zip(changes, answers, strict=True):
            if isinstance(change, Change) and answer.accepted and _ends_its_own_run(change):
                note("told", id=change.id, token=change.token, why=change.why)
        return answers

    return listened


def _ends_its_own_run(change: Change) -> bool:
    return change.token is not None and change.to is not State.RUNNING and not change.foreign


def _listen() -> None:
    from treadle.storages.postgres import PostgresStorage
    from treadle.storages.sqlite import SQLiteStorage

    for storage in (SQLiteStorage, PostgresStorage):
        storage.apply = _listening(storage.apply)  # type: ignore[method-assign]


app: App
if "SOAK_HISTORY" in os.environ:  # in a worker
    _listen()
    app = App()
    app.include(tasks)
