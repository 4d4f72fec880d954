"""Counted: numbers of which some may be too low, and which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

K = TypeVar("K")


class Counted(dict[K, int]):
    """How many there are of each. Of those in `at_least` there may be more: not every row was looked at."""

    __slots__ = ("at_least",)

    def __init__(self, numbers: Mapping[K, int], at_least: Iterable[K] = ()) -> None:
        super().__init__(numbers)
        self.at_least = frozenset(at_least)
