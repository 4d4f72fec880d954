"""Fact: one line of `treadle doctor`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

MOST_OF_A_CODE: Final = 50


class Fact(Struct, frozen=True):
    """Something that was looked at. `code` is for people to search by; `remedy` says what helps, if it is not in
    order."""

    code: str
    level: Literal["ok", "warn", "error"]
    text: str
    remedy: str = ""


def bounded(facts: Sequence[Fact], most: int = MOST_OF_A_CODE) -> list[Fact]:
    """So many of each code and level, and how many more there are: for a page, where thousands of queues may have the
    same trouble."""
    numbers = Counter((fact.code, fact.level) for fact in facts)
    seen: Counter[tuple[str, str]] = Counter()
    found: list[Fact] = []
    for fact in facts:
        key = (fact.code, fact.level)
        seen[key] += 1
        if seen[key] <= most:
            found.append(fact)
        elif seen[key] == most + 1:
            found.append(
                Fact(fact.code, fact.level, f"… and {numbers[key] - most:,} more: treadle doctor has them all")
            )
    return found
