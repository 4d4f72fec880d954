"""Opened for reading only, or so that it finds out by itself: what can be read is read, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests import pooler, postgres_server
from treadle.core.errors import ReadOnly, StorageUnavailable
from treadle.core.filter import parse
from treadle.ports import Query
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import a_job

pytestmark = pytest.mark.anyio

ALL = Query(filter=parse(""))


async def a_schema_with_a_job(url: str) -> str:
    name = postgres_server.a_schema()
    storage = PostgresStorage(url, schema=name)
    await storage.open()
    await storage.insert([a_job()])
    await storage.close()
    return name


@pytest.mark.parametrize("choice", [True, "auto"])
async def test_a_server_whose_transactions_only_read(choice: bool) -> None:
    """As on a standby: it can be read, says that it cannot be written, and refuses."""
    url = postgres_server.shared_url()
    schema = await a_schema_with_a_job(url)
    still = f"{url}{'&' if '?' in url else '?'}default_transaction_read_only=on"
    storage = PostgresStorage(still, schema=schema, read_only=choice)
    await storage.open()
    assert not await storage.is_writable() and len((await storage.find(ALL)).jobs) == 1
    with pytest.raises(ReadOnly):
        await storage.insert([a_job()])
    with pytest.raises(ReadOnly):
        await storage.lead("pod", 15.0)
    with pytest.raises(ReadOnly):
        await storage.drain_limit("x")
    await storage.close()


async def test_auto_writes_where_it_can_and_a_worker_takes_nothing_else() -> None:
    url = postgres_server.shared_url()
    schema = await a_schema_with_a_job(url)
    storage = PostgresStorage(url, schema=schema, read_only="auto")
    await storage.open()
    assert await storage.is_writable()
    await storage.insert([a_job()])
    await storage.close()
    still = f"{url}{'&' if '?' in url else '?'}default_transaction_read_only=on"
    strict = PostgresStorage(still, schema=schema, call_deadline=1.0)
    with pytest.raises(StorageUnavailable, match="read-only, a standby"):
        await strict.open()
    empty = PostgresStorage(still, schema=postgres_server.a_schema(), read_only="auto")
    with pytest.raises(StorageUnavailable, match=r"no schema .* nothing can be written"):
        await empty.open()


async def test_behind_a_pooler_too_nothing_is_written() -> None:
    """A pooler's session cannot be told once and for all that it only reads: every call says so."""
    url = postgres_server.shared_url()
    schema = await a_schema_with_a_job(url)
    way = parse_qs(urlsplit(url).query)
    with pooler.a_bouncer(way["host"][0], way["port"][0]) as bouncer:
        storage = PostgresStorage(bouncer.url, schema=schema, read_only=True)
        await storage.open()
        assert not await storage.is_writable() and len((await storage.find(ALL)).jobs) == 1
        assert {fact.code for fact in await storage.facts()} >= {"pooler", "claim-plan"}
        with pytest.raises(ReadOnly):
            await storage.insert([a_job()])
        assert len((await storage.find(ALL)).jobs) == 1
        await storage.close()


# SQLite --------------------------------------------------------------------------------------------------------------

LOOK = """
import asyncio, json, sys
from treadle import App
from treadle.core.errors import TreadleError

async def main():
    told = {}
    app = App("sqlite:///" + sys.argv[1], read_only="auto")
    try:
        async with app:
            told["writable"] = await app.storage.is_writable()
            told["jobs"] = len((await app.jobs.find("")).jobs)
            await app.enqueue("x")
    except TreadleError as error:
        told["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(told))

asyncio.run(main())
"""
# Root may do everything; without these it is like anybody else.
POWERS = "-dac_override,-dac_read_search,-fowner"


def look_without_power(path: Path) -> dict[str, object]:
    command = [sys.executable, "-c", LOOK, str(path)]
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("no setpriv: as root, every file may be written")
        command = ["setpriv", f"--bounding-set={POWERS}", f"--inh-caps={POWERS}", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


async def test_a_file_without_permission_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    storage = SQLiteStorage(path)
    await storage.open()
    await storage.insert([a_job()])
    try:
        path.chmod(0o400)
        told = look_without_power(path)
        assert (told["writable"], told["jobs"]) == (False, 1) and str(told["error"]).startswith("ReadOnly: ")
        path.chmod(0o600)
        tmp_path.chmod(0o500)  # nor without permission to write beside it
        told = look_without_power(path)
        assert (told["writable"], told["jobs"]) == (False, 1)
    finally:
        tmp_path.chmod(0o700)
        path.chmod(0o600)
        await storage.close()
    tmp_path.chmod(0o500)
    try:  # without its log, SQLite cannot read what it may not write beside
        assert "while somebody else has it open" in str(look_without_power(path)["error"])
    finally:
        tmp_path.chmod(0o700)
    assert look_without_power(path) == {"writable": True, "jobs": 1}
