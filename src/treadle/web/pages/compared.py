"""One range against another, as the Performance page says it: what is, by how much it changed, and the word for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from ...core.compare import Against, Comparison, Difference, PairChange, bad_share
from . import words

WORDS: Final[dict[Against, str]] = {"before": "just before", "yesterday": "yesterday", "week": "a week ago"}
# What can be compared with what: minutes are kept for three days, and a day before a day is just before it.
OFFERED: Final[dict[str, tuple[Against, ...]]] = {
    "15m": ("before", "yesterday"),
    "1h": ("before", "yesterday"),
    "24h": ("before", "week"),
    "7d": ("before",),
}
_WORSE: Final = ("worse", "slower")
_BETTER: Final = ("better", "faster")


class Cell(Struct):
    name: str
    value: str
    arrow: str
    change: str
    tone: str  # bad, good or soft: said by the word too


class Row(Struct):
    queue: str
    task: str
    cells: list[Cell]


def rows(found: Comparison, sort: str) -> list[Row]:
    """What changed most for the worse comes first."""
    return [Row(each.queue, each.task, _cells(each)) for each in _sorted(found.items, sort)]


def kept(asked: str, against: Against | None) -> Against | None:
    """The same comparison in another range, or the nearest that can be made there."""
    return against if against is None or against in OFFERED[asked] else "before"


def _cells(pair: PairChange) -> list[Cell]:
    now = pair.now
    share = bad_share(now)
    return [
        _cell("Runs", words.number(now.finished), pair.runs, _percent),
        _cell("Bad", words.share(share or 0.0, 1) if share is not None else "–", pair.bad, _points),
        _cell("Wait p50", words.span(now.wait.p50), pair.wait_p50, _percent),
        _cell("Wait p95", words.span(now.wait.p95), pair.wait_p95, _percent),
        _cell("Run p50", words.span(now.run.p50), pair.run_p50, _percent),
        _cell("Run p95", words.span(now.run.p95), pair.run_p95, _percent),
    ]


def _cell(name: str, value: str, change: Difference, write: Callable[[float], str]) -> Cell:
    word, by = change.word, change.by
    tone = "bad" if word in _WORSE else "good" if word in _BETTER else "soft"
    if by is None or word in ("same", "gone"):
        return Cell(name, value, "", word, tone)
    return Cell(name, value, "▲" if by > 0 else "▼", f"{write(abs(by))} {word}", tone)


def _percent(by: float) -> str:
    return f"{by * 100:.0f} %" if by < 9.995 else f"{by + 1:,.0f} ×"


def _points(by: float) -> str:
    return f"{by * 100:.1f} pp"


def _sorted(pairs: Sequence[PairChange], sort: str) -> list[PairChange]:
    if sort == "task":
        return sorted(pairs, key=lambda pair: (pair.task, pair.queue))
    name = {"runs": "runs", "bad": "bad", "wait50": "wait_p50", "wait": "wait_p95", "run50": "run_p50"}.get(sort)

    def measure(pair: PairChange) -> float:
        by = getattr(pair, name or "run_p95").by
        return -math.inf if by is None else abs(by) if name == "runs" else by

    return sorted(pairs, key=lambda pair: (-measure(pair), pair.task, pair.queue))
