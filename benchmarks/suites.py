"""Suites: the peers that are measured beside one another, on what, and the page that says how it went."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import beside_redis, floor, machine, page, postgres, report, servers, shapes, workloads
from .floor import Floor
from .harness import Bench, Sizes, Workload

DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True)
class Suite:
    ours: str
    peers: tuple[str, ...]
    workloads: tuple[Workload, ...]
    page: Path
    title: str
    how: str
    nearest: tuple[str, ...]  # us and those who come closest: with --brief
    brief: tuple[str, ...]  # the workloads of it
    floor: Callable[[Bench], Floor]
    bench: Callable[[Sizes, Path, float, list[str]], contextlib.AbstractContextManager[tuple[Bench, dict[str, str]]]]


@contextlib.contextmanager
def _on_files(sizes: Sizes, folder: Path, patience: float, names: list[str]) -> Iterator[tuple[Bench, dict[str, str]]]:
    yield Bench(sizes, folder, patience), machine.facts(folder)


@contextlib.contextmanager
def _on_servers(
    sizes: Sizes, folder: Path, patience: float, names: list[str]
) -> Iterator[tuple[Bench, dict[str, str]]]:
    facts = machine.facts(folder)
    del facts["sqlite"]
    with servers.serving(names, folder) as running:
        for server in running.values():
            facts |= server.facts()
        yield servers.ServerBench(sizes, folder, patience, servers=running), facts


def _floor_of_files(bench: Bench) -> Floor:
    return floor.of_machine(bench.folder) | floor.of_sqlite(bench.folder)


def _floor_of_servers(bench: Bench) -> Floor:
    own, found = servers.bench_of(bench), floor.of_machine(bench.folder)
    if "postgres" not in own.servers:
        return found
    with own.empty_database() as url:
        return found | floor.of_postgres(url)


SUITES = {
    "sqlite": Suite(
        ours=report.OURS,
        peers=("treadle-sqlite", "huey-sqlite"),
        workloads=(*workloads.WORKLOADS, *shapes.ON_FILES),
        page=DOCS / "benchmarks.md",
        title="Benchmarks",
        how=page.HOW,
        nearest=("treadle-sqlite", "huey-sqlite"),
        brief=("drain", "bulk", "caller-1", "callers-64", "pickup-across", "import"),
        floor=_floor_of_files,
        bench=_on_files,
    ),
    "postgres": Suite(
        ours=postgres.OURS,
        peers=("treadle-postgres", "pgqueuer", "awa-pg", "chancy", "saq-postgres", "procrastinate"),
        workloads=postgres.WORKLOADS,
        page=DOCS / "benchmarks-postgres.md",
        title="Benchmarks on PostgreSQL",
        how=postgres.HOW,
        nearest=("treadle-postgres", "pgqueuer", "awa-pg"),
        brief=("drain", "drain-two", "bulk", "caller-1", "callers-64", "pickup"),
        floor=_floor_of_servers,
        bench=_on_servers,
    ),
    "redis": Suite(
        ours=beside_redis.OURS,
        peers=beside_redis.PEERS,
        workloads=beside_redis.WORKLOADS,
        page=DOCS / "benchmarks-redis.md",
        title="Benchmarks beside Redis",
        how=beside_redis.HOW,
        nearest=("treadle-postgres", "dramatiq", "saq-redis"),
        brief=("drain", "bulk", "caller-1", "callers-64", "pickup"),
        floor=_floor_of_servers,
        bench=_on_servers,
    ),
}
