"""Enqueues inside a transaction of the caller's: there if and only if it commits (P2)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.journeys.journey_app import act
from tests.journeys.stage import HERE

from .stage import PostgresStage

CLIENT = """
import os, psycopg, sys
from journey_app import act, app
app.open_sync()
with psycopg.connect(sys.argv[1]) as db:
    app.enqueue_many_sync([act.using(id=id).bind() for id in sys.argv[2:]], within=db)
    os.kill(os.getpid(), 9)
"""


class Oops(Exception):
    """Something in the caller's transaction goes wrong."""


def test_psycopg(stage: PostgresStage) -> None:
    stage.start()
    with psycopg.connect(stage.server.url) as db:
        gone = _ids(stage.app.enqueue_many_sync([act.bind() for _ in range(3)], within=db))
        db.rollback()
        stage.enqueue_within(db, 3)
        assert not stage.jobs(), "nobody sees it before the commit"
        db.commit()
    with contextlib.suppress(Oops), psycopg.connect(stage.server.url) as db:
        gone += _ids(stage.app.enqueue_many_sync([act.bind()], within=db))
        raise Oops
    _all_ran(stage, 3, gone)


def test_a_session_that_is_terminated_before_its_commit_leaves_nothing(stage: PostgresStage) -> None:
    stage.start()
    with contextlib.closing(psycopg.connect(stage.server.url)) as db:
        gone = _ids(stage.app.enqueue_many_sync([act.bind() for _ in range(3)], within=db))
        stage.terminate([db.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            db.commit()
    stage.act(count=2)
    _all_ran(stage, 2, gone)


def test_a_process_killed_before_its_commit_leaves_nothing(stage: PostgresStage) -> None:
    stage.start()
    gone = ["0192aaaa-0000-7000-8000-00000000000" + digit for digit in "123"]
    client = subprocess.run(
        [sys.executable, "-c", CLIENT, stage.server.url, *gone],
        cwd=HERE,
        env=stage.environ() | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
    )
    assert client.returncode == -9, client.stderr
    stage.tally.kills += 1
    stage.act(count=2)
    _all_ran(stage, 2, gone)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_async_drivers(stage: PostgresStage, driver: str) -> None:
    stage.start()
    kept, gone = asyncio.run(_with_psycopg(stage) if driver == "psycopg" else _with_asyncpg(stage))
    stage.known.update(kept)
    _all_ran(stage, 3, gone)


async def _with_psycopg(stage: PostgresStage) -> tuple[list[str], list[str]]:
    async with await psycopg.AsyncConnection.connect(stage.server.url) as db:
        gone = _ids(await stage.app.enqueue_many([act.bind()], within=db))
        await db.rollback()
        kept = _ids(await stage.app.enqueue_many([act.bind() for _ in range(3)], within=db))
        assert not stage.jobs(), "nobody sees it before the commit"
        await db.commit()
    return kept, gone


async def _with_asyncpg(stage: PostgresStage) -> tuple[list[str], list[str]]:
    db: Any = await asyncpg.connect(stage.server.url)
    gone: list[str] = []
    try:
        with contextlib.suppress(Oops):
            async with db.transaction():
                gone = _ids(await stage.app.enqueue_many([act.bind()], within=db))
                raise Oops
        async with db.transaction():
            kept = _ids(await stage.app.enqueue_many([act.bind() for _ in range(3)], within=db))
            assert not stage.jobs(), "nobody sees it before the commit"
    finally:
        await db.close()
    return kept, gone


def _ids(handles: list[Any]) -> list[str]:
    return [handle.id for handle in handles]


def _all_ran(stage: PostgresStage, count: int, gone: list[str]) -> None:
    assert len(stage.known) == count
    stage.drain()
    assert {stage.state(id) for id in stage.known} == {"succeeded"}
    assert not stage.known & set(gone)
    assert not stage.effects("began", *gone)
    assert stage.jobs().keys().isdisjoint(gone)
