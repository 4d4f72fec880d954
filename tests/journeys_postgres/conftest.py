"""A server for the session, a stage for each journey; the checker runs after every one that went well."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.postgres_server import Server, a_server
from tests.tcp_proxy import Proxy

from .stage import PostgresStage

_passed = pytest.StashKey[bool]()
_FIGURE = "postgres figure"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.journey)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture(scope="session")
def _server() -> Generator[Server]:
    # After a crash it would flush each of its thousand files by itself, and the journeys would wait for the disk.
    with a_server(fast=False, max_connections="40", recovery_init_sync_method="syncfs") as server:
        yield server


@pytest.fixture
def server(_server: Server) -> Server:
    """One with fsync on. A journey that went wrong may have left it dead."""
    if _server.pid is None:
        _server.start()
    return _server


@pytest.fixture
def proxy(server: Server) -> Generator[Proxy]:
    with Proxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def stage_on(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    server: Server,
    proxy: Proxy,
    record_property: Callable[[str, object], None],
) -> Generator[Callable[..., PostgresStage]]:
    """For journeys that choose the way to the server. The proxy outlives the stage, whoever asked for it."""
    made: list[PostgresStage] = []

    def make(url: str | None = None, *, audit: bool = True) -> PostgresStage:
        stage = PostgresStage(tmp_path, server, url, audit=audit)
        made.append(stage)
        stage.open()
        return stage

    yield make
    for stage in made:
        try:
            if request.node.stash.get(_passed, False):
                stage.stop_workers()
                stage.check()
        finally:
            stage.close()
            recoveries = [f"{each:.2f}" for each in sorted(stage.tally.recoveries)]
            told = [f"{name} {value:.4g}" for name, value in stage.figures.items()]
            told += [f"recoveries {' '.join(recoveries)} s"] if recoveries else []
            record_property(_FIGURE, f"{request.node.name}: {'; '.join(told)}" if told else "")


@pytest.fixture
def stage(stage_on: Callable[..., PostgresStage]) -> PostgresStage:
    return stage_on()


@pytest.fixture
def proxied(stage_on: Callable[..., PostgresStage], proxy: Proxy) -> PostgresStage:
    """A stage whose workers and driver speak to the server through the proxy."""
    return stage_on(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    told = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for name, value in report.user_properties
        if name == _FIGURE and value
    ]
    if told:
        terminalreporter.write_sep("-", "journeys on PostgreSQL")
        for line in told:
            terminalreporter.write_line(line)
