"""Suites: the peers that are measured beside one another, on what, and the page that says how it went."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import machine, page, postgres, report, workloads
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
    bench: Callable[[Sizes, Path, float, list[str]], contextlib.AbstractContextManager[tuple[Bench, dict[str, str]]]]


@contextlib.contextmanager
def _on_files(sizes: Sizes, folder: Path, patience: float, names: list[str]) -> Iterator[tuple[Bench, dict[str, str]]]:
    yield Bench(sizes, folder, patience), machine.facts(folder)


@contextlib.contextmanager
def _on_a_server(
    sizes: Sizes, folder: Path, patience: float, names: list[str]
) -> Iterator[tuple[Bench, dict[str, str]]]:
    facts = machine.facts(folder)
    del facts["sqlite"]
    with postgres.serving(names, folder) as server:
        machine.beside.append(server.cpu)
        try:
            yield postgres.PostgresBench(sizes, folder, patience, server=server), facts | server.facts()
        finally:
            machine.beside.remove(server.cpu)


SUITES = {
    "sqlite": Suite(
        ours=report.OURS,
        peers=("treadle-sqlite", "huey-sqlite"),
        workloads=workloads.WORKLOADS,
        page=DOCS / "benchmarks.md",
        title="Benchmarks",
        how=page.HOW,
        bench=_on_files,
    ),
    "postgres": Suite(
        ours=postgres.OURS,
        peers=("treadle-postgres", "pgqueuer", "awa-pg", "procrastinate"),
        workloads=postgres.WORKLOADS,
        page=DOCS / "benchmarks-postgres.md",
        title="Benchmarks on PostgreSQL",
        how=postgres.HOW,
        bench=_on_a_server,
    ),
}
