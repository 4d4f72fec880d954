"""PgBouncer in transaction mode: no session is anybody's own, and LISTEN is deaf without saying so."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import Server

from .stage import PATIENCE, PostgresStage

DEAF = "LISTEN hears nothing"


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
    def __init__(self, program: str, folder: Path, server: Server) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._command = [program, str(folder / "pgbouncer.ini")]
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "users.txt").write_text('"postgres" ""\n')
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n"
            f"postgres = host={server.directory} port={server.port} user=postgres\n"
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


@pytest.fixture
def bouncer(server: Server) -> Generator[Bouncer]:
    folder = server.directory.parent / f"bouncer-{time.time_ns()}"  # where `nobody` may go
    folder.mkdir()
    bouncer = Bouncer(_program(), folder, server)
    bouncer.start()
    yield bouncer
    bouncer.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pooled(bouncer: Bouncer, stage_on: Callable[..., PostgresStage]) -> PostgresStage:
    return stage_on(bouncer.url)


def test_everything_works_behind_a_pooler_and_polling_takes_over(pooled: PostgresStage, bouncer: Bouncer) -> None:
    """C15. With one warning for each worker; also through a restart of the pooler, under load."""
    stage = pooled
    workers = [stage.start(), stage.start()]
    with stage.load():
        stage.wait(lambda: all(worker.said(DEAF) for worker in workers), "each finds that it is deaf")
        bouncer.stop()
        time.sleep(0.5)
        bouncer.start()
        stage.resumes("a restart of the pooler", within=15)
    stage.drain()
    latencies = sorted(_pickup(stage) for _ in range(10))
    stage.figures["pickup by polling each 100 ms, worst, ms"] = latencies[-1] * 1000
    assert latencies[-1] < 3.0
    assert stage.all_live()
    assert [worker.log.count(DEAF) for worker in workers] == [1, 1]
    assert stage.lost_pods() == 0
    assert not [line for worker in workers for line in worker.log.splitlines() if "prepared statement" in line]


def test_a_killed_worker_behind_a_pooler_is_replaced(pooled: PostgresStage) -> None:
    """Leases and the lead are rows, and no session's."""
    stage = pooled
    ids = stage.act("gate", gate="never", until_attempt=1, count=3)
    victim = stage.start()
    stage.wait(stage.began(*ids), "the jobs run")
    stage.start()
    victim.kill()
    stage.recovery(victim, ids)
    stage.drain()
    assert {(job["state"], job["attempt"], job["crashes"]) for job in stage.jobs().values()} == {("succeeded", 2, 1)}


def test_a_direct_way_for_wakes_makes_pickup_quick_again(pooled: PostgresStage) -> None:
    """TREADLE_LISTEN_URL, for the worker; the driver's own wakes go by NOTIFY, which a pooler lets through."""
    stage = pooled
    worker = stage.start(poll=20.0, listen_url=stage.server.url)
    stage.wait(lambda: _pickup(stage) < 1.0, "jobs are picked up at once")
    latencies = sorted(_pickup(stage) for _ in range(10))
    stage.figures["pickup by wakes, worst, ms"] = latencies[-1] * 1000
    assert latencies[-1] < 2.0
    assert not worker.said(DEAF)


def _pickup(stage: PostgresStage) -> float:
    (id,) = stage.act()
    begun = time.monotonic()
    stage.wait(lambda: stage.effects("began", id), "the job runs", within=25)
    return stage.effects("began", id)[0].at - begun
