"""A stage for each journey; the checker runs after every one that went well, and nothing is left behind by any."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from .stage import Stage

_passed = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.journey)
    # The longest first: one that is begun last would be waited for by processes that have nothing left to do.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture
def stage_on(
    request: pytest.FixtureRequest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> Generator[Callable[[Path | None], Stage]]:
    """For journeys that choose where the database lies."""
    made: list[Stage] = []

    def make(database: Path | None) -> Stage:
        stage = Stage(tmp_path, database)
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
            record_property("kills", stage.tally.kills)
            record_property("recoveries", stage.tally.recoveries)


@pytest.fixture
def stage(stage_on: Callable[[Path | None], Stage]) -> Stage:
    return stage_on(None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How often a process was killed, and how soon somebody else had its jobs."""
    told = [
        pair
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "teardown"
        for pair in report.user_properties
    ]
    kills = sum(value for name, value in told if name == "kills")
    recoveries = sorted(each for name, value in told if name == "recoveries" for each in value)
    if kills:
        terminalreporter.write_sep("-", "journeys")
        terminalreporter.write_line(f"{kills} processes killed -9")
    if len(recoveries) > 1:
        cuts = quantiles(recoveries, n=100, method="inclusive")
        terminalreporter.write_line(
            f"{len(recoveries)} recoveries: p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, worst {recoveries[-1]:.2f} s"
        )
