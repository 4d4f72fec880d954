"""A primary and a streaming standby: the primary dies, and the standby takes its place."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.postgres_server import Server, a_server, a_standby
from treadle import StorageUnavailable
from treadle.storages.postgres import PostgresStorage

from .stage import PostgresStage


@pytest.fixture
def pair() -> Generator[tuple[Server, Server]]:
    """Every commit that waits for the disk waits for the standby's too: what was acknowledged is in both places."""
    with a_server(synchronous_standby_names="walreceiver") as primary, a_standby(primary) as standby:
        yield primary, standby


def test_a_promoted_standby_is_found_under_load_and_no_finish_is_lost(
    pair: tuple[Server, Server], tmp_path: Path
) -> None:
    """C9. Both hosts are in the URL. Claims do not wait for the standby: one that did not get there is a job that is
    claimed again, and its first owner's finish is refused."""
    primary, standby = pair
    url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
    _refuses_a_standby(standby)
    stage = PostgresStage(tmp_path, primary, f"{url}?target_session_attrs=read-write")
    with contextlib.closing(stage):
        stage.open()
        assert stage.ask("select sync_state as is from pg_stat_replication")[0]["is"] == "sync"
        stage.start_many()
        with stage.load() as load:
            stage.wait(lambda: load.accepted > 50 and stage.ended_since(0) > 50, "work is under way")
            # A commit that waits for the standby is seen by nobody yet: all of these were acknowledged.
            finished = _finishes(stage)
            stage.kill_server()
            time.sleep(0.5)
            standby.promote()
            stage.server = standby
            stage.resumes("the standby was promoted", within=15)
        stage.drain()
        assert stage.all_live()
        after = _finishes(stage)
        assert finished.items() <= after.items(), "a committed finish was lost"
        stage.stop_workers()
        stage.check()


def _finishes(stage: PostgresStage) -> dict[str, str]:
    rows = stage.ask("select id::text, finished_token from job_history where state = 'succeeded'")
    return {row["id"]: row["finished_token"] for row in rows}


def _refuses_a_standby(standby: Server) -> None:
    """To open a standby alone is a clear error, and soon."""

    async def attempt() -> None:
        storage = PostgresStorage(standby.tcp_url, call_deadline=1.0)
        try:
            await storage.open()
        finally:
            await storage.close()

    with pytest.raises(StorageUnavailable, match="read-only, a standby") as told:
        asyncio.run(attempt())
    assert "\n" not in str(told.value)
