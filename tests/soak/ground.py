"""The ground of a soak: a database that can be harmed, and that is asked by a witness whom Treadle does not know."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import psycopg
from psycopg.rows import dict_row

from tests.journeys.stage import PATIENCE, QUICK, state_of
from tests.postgres_server import Server, a_schema, a_server
from tests.tcp_proxy import Proxy
from treadle import App
from treadle.core.job import Job, State

from . import audit
from .soak_app import tasks

CALL = 3.0  # deadline of a storage call
DISK = 160 << 20


class Ground(Protocol):
    name: str
    app: App
    kinds: tuple[str, ...]  # faults that only this ground has
    left_out: dict[str, str]  # faults that cannot be had here, and why
    offset: float  # makes wall-clock time of the clock that leases are counted by

    def environ(self) -> dict[str, str]: ...
    def rows(self) -> list[audit.Row]: ...
    def jobs(self) -> list[Job]: ...
    def fenced(self) -> dict[str, str]: ...
    def live(self) -> int:
        """How many jobs have not ended."""
        ...

    def sample(self) -> tuple[int, int]:
        """Jobs that were ever inserted, and jobs that are there, in one snapshot."""
        ...

    def verify(self) -> str | None:
        """What is wrong with the database itself."""
        ...


def _app(url: str, **settings: str) -> App:
    own = {f"TREADLE_{name.upper()}": str(value) for name, value in QUICK.items()}
    with mock.patch.dict(os.environ, {**own, **settings}):
        app = App(url)
    app.include(tasks)
    return app


# SQLite --------------------------------------------------------------------------------------------------------------


class SQLiteGround:
    name = "sqlite"

    def __init__(self, disk: Path, *, is_small: bool) -> None:
        self.disk = disk
        self.database = disk / "jobs.db"
        self.kinds = ("lock holder", *(["disk full"] if is_small else []))
        # One host has one clock: there is no pod whose clock is wrong and the others' right.
        self.left_out = {"clock shift": "all pods of a SQLite file have one clock, their host's"}
        if not is_small:
            self.left_out["disk full"] = "a small tmpfs cannot be mounted: that needs root"
        self.offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        url = f"sqlite:///{self.database}"
        self._environ = {"TREADLE_URL": url, "TREADLE_LOOP": "asyncio", "SOAK_FENCED": str(self.database)}
        self.app = _app(url)
        self.app.open_sync()
        with contextlib.closing(sqlite3.connect(self.database)) as db:
            db.executescript(audit.SQLITE)
        self._db = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=30, check_same_thread=False)
        self._db.row_factory = sqlite3.Row

    def environ(self) -> dict[str, str]:
        return self._environ

    def _ask(self, sql: str) -> list[sqlite3.Row]:
        return self._db.execute(sql).fetchall()

    def rows(self) -> list[audit.Row]:
        return [dict(row) for row in self._ask("select * from soak_audit order by n")]

    def jobs(self) -> list[Job]:
        return [_job(row) for row in self._ask(f"select {_COLUMNS} from treadle_job")]

    def fenced(self) -> dict[str, str]:
        return {row["id"]: row["token"] for row in self._ask("select id, token from soak_fenced")}

    def live(self) -> int:
        return int(self._ask("select count(*) as n from treadle_job where finished_at is null")[0]["n"])

    def sample(self) -> tuple[int, int]:
        (row,) = self._ask(
            "select (select count(*) from soak_audit where op = 'job' and was is null) as inserted, "
            "(select count(*) from treadle_job) as there"
        )
        return row["inserted"], row["there"]

    def verify(self) -> str | None:
        with contextlib.closing(sqlite3.connect(self.database)) as db:
            (said,) = db.execute("pragma integrity_check").fetchone()
        return None if said == "ok" else f"the file is corrupt: {said}"

    @contextlib.contextmanager
    def closing(self) -> Generator[None]:
        try:
            yield
        finally:
            self.app.close_sync()
            self._db.close()


@contextlib.contextmanager
def on_sqlite() -> Generator[SQLiteGround]:
    """A file on a small disk of its own, if we may mount one."""
    disk = Path(tempfile.mkdtemp(prefix="treadle-soak-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "tmpfs", str(disk)]
    mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        ground = SQLiteGround(disk, is_small=mounted)
        with ground.closing():
            yield ground
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=False)
        shutil.rmtree(disk, ignore_errors=True)


# PostgreSQL ----------------------------------------------------------------------------------------------------------


class PostgresGround:
    name = "postgres"
    kinds = (
        "ended session",
        "server restart",
        "server kill",
        "cut connections",
        "half-open connections",
        "slow network",
        "clock shift",
    )
    offset = 0.0  # its leases are wall-clock times

    def __init__(self, server: Server, proxy: Proxy) -> None:
        self.server = server
        self.proxy = proxy
        self.left_out: dict[str, str] = {}
        self.schema = a_schema()
        self._witness: psycopg.Connection[dict[str, Any]] | None = None
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"
        self._environ = {
            "TREADLE_URL": url,
            "TREADLE_LOOP": "uvloop",
            "TREADLE_SCHEMA": self.schema,
            "TREADLE_CALL": str(CALL),
            "SOAK_FENCED": server.url,
        }
        self.app = _app(url, TREADLE_SCHEMA=self.schema, TREADLE_CALL=str(CALL))
        self.app.open_sync()
        with contextlib.closing(self.connect()) as db:
            db.execute(audit.POSTGRES.format(schema=self.schema))  # type: ignore[call-overload]

    def environ(self) -> dict[str, str]:
        return self._environ

    def connect(self) -> psycopg.Connection[dict[str, Any]]:
        """To the server itself, past the proxy."""
        return psycopg.connect(self.server.url, autocommit=True, row_factory=dict_row, application_name="soak")

    def ask(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """Waits for a server that is away."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                if self._witness is None:
                    self._witness = self.connect()
                    self._witness.execute(f"set search_path = {self.schema}, public")  # type: ignore[call-overload]
                return self._witness.execute(sql, values).fetchall()  # type: ignore[call-overload]
            except psycopg.OperationalError:
                self.forget_witness()
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def forget_witness(self) -> None:
        witness, self._witness = self._witness, None
        if witness is not None:
            witness.close()

    def rows(self) -> list[audit.Row]:
        return self.ask("select * from soak_audit order by n")

    def jobs(self) -> list[Job]:
        columns = _COLUMNS.replace("id,", "id::text as id,", 1)
        return [_job(row) for row in self.ask(f"select {columns} from job union all select {columns} from job_history")]

    def fenced(self) -> dict[str, str]:
        return {row["id"]: row["token"] for row in self.ask("select id, token from soak_fenced")}

    def live(self) -> int:
        return int(self.ask("select count(*) as n from job")[0]["n"])

    def sample(self) -> tuple[int, int]:
        (row,) = self.ask(
            "select (select count(distinct id) from soak_audit where op = 'live+') as inserted, "
            "(select count(*) from job) + (select count(*) from job_history) as there"
        )
        return int(row["inserted"]), int(row["there"])

    def verify(self) -> str | None:
        return None

    # Harm ------------------------------------------------------------------------------------------------------------

    def sessions(self) -> list[int]:
        rows = self.ask("select pid from pg_stat_activity where application_name like 'treadle%%'")
        return [row["pid"] for row in rows]

    def restart(self) -> None:
        self.forget_witness()
        self.server.stop("fast")
        self.server.start()

    def kill(self) -> None:
        """kill -9 of the postmaster. Init may take a while to bury it; its zombie would keep the next from starting."""
        self.forget_witness()
        pid = self.server.pid or 0
        self.server.kill()
        until = time.monotonic() + PATIENCE
        while state_of(pid) not in ("", "Z") and time.monotonic() < until:
            time.sleep(0.02)
        (self.server.data / "postmaster.pid").unlink(missing_ok=True)
        self.server.start()


@contextlib.contextmanager
def on_postgres() -> Generator[PostgresGround]:
    """A private server with fsync on, behind a proxy that misbehaves when told to."""
    with a_server(fast=False, max_connections="60") as server, Proxy("127.0.0.1", server.port) as proxy:
        ground = PostgresGround(server, proxy)
        try:
            yield ground
        finally:
            ground.app.close_sync()
            ground.forget_witness()


_COLUMNS = "id, task, queue, state, attempt, max_attempts, crashes, args, unique_key"


def _job(row: Any) -> Job:
    return Job(
        id=row["id"],
        task=row["task"],
        queue=row["queue"],
        state=State(row["state"]),
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        crashes=row["crashes"],
        args=row["args"],
        unique_key=row["unique_key"],
    )
