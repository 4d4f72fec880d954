"""A real PgBouncer in transaction mode in front of a test server."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest

PATIENCE = 30.0


@contextlib.contextmanager
def a_bouncer(host: Path | str, port: int | str, user: str = "postgres") -> Generator[Bouncer]:
    """One before the server with this socket, where everybody is this user."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-bouncer-"))
    bouncer = Bouncer(_program(), folder, str(host), int(port), user)
    try:
        bouncer.start()
        yield bouncer
    finally:
        bouncer.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _program() -> str:
    """PgBouncer, from Debian if need be."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if found is None and os.getuid() == 0 and shutil.which("apt-get"):
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "-y", "pgbouncer"]):
            subprocess.run(
                command, capture_output=True, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            )
        found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        why = "no PgBouncer here: apt install pgbouncer"
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(why)
        pytest.skip(why)
    return found


class Bouncer:
    def __init__(self, program: str, folder: Path, host: str, port: int, user: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._command = [program, str(folder / "pgbouncer.ini")]
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "users.txt").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n"
            f"postgres = host={host} port={port} user={user}\n"
            f"[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = any\nauth_file = {folder}/users.txt\n"
            f"logfile = {folder}/pgbouncer.log\npidfile = {folder}/pgbouncer.pid\n"
            f"pool_mode = transaction\ndefault_pool_size = 10\nmax_client_conn = 200\n"
        )
        if os.getuid() == 0:
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, "nobody")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(self._command, cwd="/", **quiet, **as_user)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url).close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, "PgBouncer has ended"
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
