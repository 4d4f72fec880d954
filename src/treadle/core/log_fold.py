"""The log of a job as a page shows it: by attempt, the newest lines of it, and those alone that are looked for.

A job of many attempts may have megabytes of lines, and a page has room for some of them: the newest stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .logline import LogView
from .text import visible_lines

ROOM: Final = 140_000  # bytes of a page
LOOKED_AT: Final = 1_000_000  # bytes that are looked at for a text
LINE: Final = 170  # of them for what stands around a line: its time, its level, its place
_ESCAPED: Final = re.compile("[&<>'\"]")
_SEVERE: Final = ("error", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """What one attempt has logged, oldest first."""

    attempt: int
    lines: tuple[LogView, ...]

    @property
    def errors(self) -> int:
        return sum(line.level in _SEVERE for line in self.lines)

    @property
    def warnings(self) -> int:
        return sum(line.level == "warning" for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedLog:
    """`attempts`: the newest first. Of `total` lines `matching` have the text that is looked for, and the oldest
    `left_out` of these found no room."""

    attempts: tuple[AttemptLog, ...]
    text: str
    total: int
    matching: int
    left_out: int
    more: bool  # there are lines that were not looked at

    @property
    def shown(self) -> int:
        return self.matching - self.left_out


def newest(lines: Sequence[LogView], room: int = ROOM) -> list[LogView]:
    """Of lines, oldest first, the newest that have room."""
    kept: list[LogView] = []
    for line in reversed(lines):
        room -= cost(line)
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]


def fold(lines: Sequence[LogView], *, text: str = "", skipped: int = 0, more: bool = False) -> FoldedLog:
    """The lines, oldest first, as a page shows them; those that have `text` in their words or their level. `skipped`
    older lines were read and found no room: where a text is looked for, they were not looked at."""
    wanted = text.strip().casefold()
    matching = [line for line in lines if wanted in f"{line.level} {line.text}".casefold()] if wanted else lines
    kept = newest(matching)
    by_attempt: dict[int, list[LogView]] = {}
    for line in kept:
        by_attempt.setdefault(line.attempt, []).append(line)
    older = 0 if wanted else skipped
    return FoldedLog(
        attempts=tuple(
            AttemptLog(attempt=number, lines=tuple(found)) for number, found in sorted(by_attempt.items(), reverse=True)
        ),
        text=text.strip(),
        total=len(lines) + older,
        matching=len(matching) + older,
        left_out=len(matching) + older - len(kept),
        more=more or (bool(wanted) and skipped > 0),
    )


def cost(line: LogView) -> int:
    """Bytes of a page that a line takes: what does not show itself is written by its number, and HTML escapes some."""
    shown = visible_lines(line.text)
    return len(shown.encode("utf-8", "replace")) + 4 * len(_ESCAPED.findall(shown)) + LINE
