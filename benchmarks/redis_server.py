"""The harness' own Redis server: one for a run, emptied before every measurement.

It runs at Redis' own defaults: snapshots (`save 3600 1 300 100 60 10000`), no append-only file. So an enqueue is in
memory when it returns, and what came after the last snapshot is lost with the machine or with a killed server: that is
less than the sync for every commit of SQLite and PostgreSQL here.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import IO

from .harness import Figures
from .processes import Failed, cpu_with_ended

URL = "BENCH_REDIS_URL"
PATIENCE = 10.0


def url() -> str:
    return os.environ[URL]


class Client:
    """As much of a client as the harness needs, so that none has to be installed."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._stream: IO[bytes] = self._socket.makefile("rb")
        self.asked = 0

    def ask(self, *words: str) -> str:
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in map(str.encode, words)]
        self._socket.sendall(b"*%d\r\n" % len(parts) + b"".join(parts))
        self.asked += 1
        line = self._stream.readline()
        if line[:1] == b"-":
            raise Failed(f"Redis to {words[0]}: {line[1:].decode().strip()}")
        if line[:1] != b"$":
            return line[1:].decode().strip()
        return self._stream.read(int(line[1:]) + 2)[:-2].decode()

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


_client: list[Client] = []


def ask(*words: str) -> str:
    """What the server answers to the harness, asked while others use it."""
    return _client[0].ask(*words)


class RedisServer:
    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise Failed("no Redis here: apt-get install --no-install-recommends redis-server")
        self._program = program
        self._folder = folder / "redis"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir()
        # Peers speak with it by TCP, as all of them can; the harness by a socket.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        path = self._folder / "s"
        options = {"bind": "127.0.0.1", "port": str(port), "unixsocket": str(path), "dir": str(self._folder)}
        command = [self._program, *(word for name, value in options.items() for word in (f"--{name}", value))]
        with (self._folder / "log").open("w") as log:
            self._process = process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while not path.exists():
            if time.monotonic() > until or process.poll() is not None:
                raise Failed(f"Redis does not start\n{(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.01)
        os.environ[URL] = f"redis://127.0.0.1:{port}/0"
        _client[:] = [Client(str(path))]

    def remove(self) -> None:
        for client in _client:
            client.close()
        _client.clear()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def facts(self) -> dict[str, str]:
        told = dict(line.split(":", 1) for line in ask("info", "server").split("\r\n") if ":" in line)
        return {
            "Redis": f"{told['redis_version']}, on the same machine, by TCP on loopback",
            "its durability": "Redis' default: snapshots after 3600 s and 1 change, 300 s and 100, 60 s and 10,000; "
            "appendonly no. Less than the sync for every commit that PostgreSQL does here",
        }

    def create(self, place: Path, template: Path | None = None) -> None:
        ask("flushall")

    def drop(self, place: Path) -> None:
        ask("flushall")

    def prepare(self, place: Path) -> None:
        """A snapshot now, so that the next one is not due at once."""
        ask("save")

    def cpu(self) -> float:
        assert self._process is not None
        return cpu_with_ended(self._process.pid)

    def meter(self, place: Path) -> RedisMeter:
        return RedisMeter(self)


class RedisMeter:
    """What the server spends and is asked, over a span."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.begin()

    def begin(self) -> None:
        self._cpu, self._reads = self._server.cpu(), self._read()

    def span(self, jobs: float) -> Figures:
        return {
            "server_us": (self._server.cpu() - self._cpu) / jobs * 1e6,
            "trips": (self._read() - self._reads) / jobs,
        }

    def whole(self, jobs: float) -> Figures:
        return {}

    def _read(self) -> int:
        """How often the server has read from a client: a request, or many that were sent together. Without ours."""
        for line in ask("info", "stats").split("\r\n"):
            if line.startswith("total_reads_processed:"):
                return int(line.partition(":")[2]) - _client[0].asked
        raise Failed("this Redis does not count its reads: 7.0 or newer is needed")
