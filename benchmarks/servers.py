"""Bench on servers: the databases are those of a server, and the costs are the server's too."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import machine, venvs
from .harness import Bench, Figures, Meter
from .peers import Peer, find
from .processes import Failed, cpu_seconds
from .redis_server import RedisServer
from .server import Server, url
from .tally import Tallies


@dataclass
class ServerBench(Bench):
    """A Bench whose places are on the servers that the peers need."""

    servers: dict[str, Server | RedisServer] = field(default_factory=dict)
    _templates: dict[str, Path] = field(default_factory=dict)

    @property
    def postgres(self) -> Server:
        server = self.servers["postgres"]
        assert isinstance(server, Server)
        return server

    def server_of(self, peer: Peer) -> Server | RedisServer:
        return self.servers[storage_of(peer)]

    @contextlib.contextmanager
    def place(self, peer: Peer) -> Iterator[Path]:
        place = self._folder(peer)
        try:
            self.server_of(peer).create(place, self.template(peer))
            yield place
        finally:
            self.server_of(peer).drop(place)
            shutil.rmtree(place)

    def template(self, peer: Peer) -> Path | None:
        """A database with the peer's empty tables, made once: every other one is a copy of it."""
        if storage_of(peer) != "postgres":
            return None
        if peer.name not in self._templates:
            place = self._folder(peer)
            self.postgres.create(place)
            self.in_child(peer, place, "create")
            self._templates[peer.name] = place
        return self._templates[peer.name]

    @contextlib.contextmanager
    def empty_database(self) -> Iterator[str]:
        """The address of a PostgreSQL database without anything."""
        place = self.folder / f"empty-{time.monotonic_ns()}"
        self.postgres.create(place)
        try:
            yield url(place)
        finally:
            self.postgres.drop(place)

    def prepare(self, peer: Peer, place: Path) -> None:
        self.server_of(peer).prepare(place)

    def meter(self, peer: Peer, place: Path) -> Meter:
        return self.server_of(peer).meter(place)

    def enqueue(self, peer: Peer, place: Path, action: str, **arguments: float) -> Figures:
        meter, extra = self.meter(peer, place), 0.0
        with self.producer(peer, place) as producer:
            extra += producer.do("callers", callers=1, seconds=0.01)["jobs"]  # it is up, and the database is open
            cpu = cpu_seconds(producer.pid)
            meter.begin()
            answer = producer.do(action, **arguments)
            jobs = answer["jobs"]
            figures = {
                "rate": jobs / answer["seconds"],
                "producer_us": (cpu_seconds(producer.pid) - cpu) / jobs * 1e6,
                **meter.span(jobs),
            }
        return figures | meter.whole(jobs + extra)

    def drain(
        self,
        peer: Peer,
        place: Path,
        jobs: int,
        workers: int = 1,
        slots: int | None = None,
        *,
        all_of_them: bool = True,
    ) -> Figures:
        """From the first line of the first job (of several workers: from when each of them has run one) until the
        database says that all are done; or, out of a backlog, until so many have run."""
        tallies = Tallies(place / "tally")
        meter = self.meter(peer, place)
        peer.unfinished(place)  # its connection is there when the time runs
        with contextlib.ExitStack() as stack:
            pids = [stack.enter_context(self.worker(peer, place, slots=slots)) for _ in range(workers)]
            self.wait(lambda: tallies.count > 0, "the first job")
            began, before = self.begun(tallies, jobs, workers)
            cpu = sum(map(cpu_seconds, pids))
            meter.begin()
            done = tallies.count
            self.wait(lambda: tallies.count >= jobs, f"{jobs} jobs")
            if all_of_them:
                # A tenth of a second too late would be a tenth of what the fastest need for all of it.
                self.wait(lambda: peer.unfinished(place) == 0, "the last finish", share=0.9)
                if tallies.count != jobs:
                    raise Failed(f"{tallies.count} runs of {jobs} jobs")
            ran, seconds = tallies.count, time.monotonic() - began
            counted = max(1, ran - done)
            figures = {
                "rate": (ran - before) / seconds,
                "worker_us": (sum(map(cpu_seconds, pids)) - cpu) / counted * 1e6,
                **meter.span(counted),
                **({"smaller_share": tallies.counts[workers - 1] / ran} if workers == 2 else {}),
            }
        # With those of the workers' start and end.
        return figures | meter.whole(tallies.count)


def storage_of(peer: Peer) -> str:
    return getattr(peer, "storage", "")


def bench_of(bench: Bench) -> ServerBench:
    assert isinstance(bench, ServerBench)
    return bench


@contextlib.contextmanager
def serving(names: list[str], folder: Path) -> Iterator[dict[str, Server | RedisServer]]:
    """The peers' environments, and servers of our own, those that they need."""
    found = [find(name) for name in names]
    for peer in found:
        if peer.requirements:
            venvs.make(peer.name, peer.requirements)
    needed = {storage_of(peer) for peer in found}
    makers = {"postgres": Server, "redis": RedisServer}
    with contextlib.ExitStack() as stack:
        servers: dict[str, Server | RedisServer] = {}
        for storage in sorted(needed):
            server = makers[storage](folder)
            stack.callback(server.remove)
            server.start()
            machine.beside.append(server.cpu)
            stack.callback(machine.beside.remove, server.cpu)
            servers[storage] = server
        yield servers
