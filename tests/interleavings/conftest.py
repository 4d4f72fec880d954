"""Says at the end how many orders were tried."""

from __future__ import annotations

from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        counts.update({name: n for name, n in report.user_properties if isinstance(n, int)})
    if counts:
        terminalreporter.write_line(", ".join(f"{n} {name}" for name, n in sorted(counts.items())))
