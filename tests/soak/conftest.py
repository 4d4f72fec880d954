"""The numbers of the short campaigns, at the end of a run."""

from __future__ import annotations

from typing import Any

import pytest

SOAK = "soak"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The campaigns first: they wait more than they work, and run side by side."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    told = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == SOAK
    ]
    for text in told:
        terminalreporter.write_line(text)
