"""A long list, as much of it as a page shows: those whose names hold the text that is looked for, a page at a time.

There may be twenty thousand queues, and a page of them all is twenty megabytes. Short lists stay in the order they
have; in a long one, what is going on comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

MOST: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """`rows` are those on this page, from `first` on (counted from 1); `matching` of all `total` have the text."""

    rows: Sequence[T]
    text: str
    page: int
    first: int
    matching: int
    total: int

    @property
    def is_short(self) -> bool:
        """Whether the page shows every row, without a search."""
        return not self.text and len(self.rows) == self.total

    @property
    def following(self) -> int | None:
        """The number of the next page."""
        return self.page + 1 if self.first - 1 + len(self.rows) < self.matching else None


def listing(
    found: Sequence[T],
    name: Callable[[T], str],
    *,
    rank: Callable[[T], Any] | None = None,
    text: str = "",
    page: int = 1,
    most: int = MOST,
) -> Listing[T]:
    """`rank`: what comes first, if there are more than fit on a page. A name that is the text itself comes before all.

    >>> listing(["mail", "email", "fax"], str, text="MAIL").rows
    ['mail', 'email']
    """
    wanted = text.casefold().strip()
    matching = [each for each in found if wanted in name(each).casefold()] if wanted else list(found)
    if rank is not None and len(found) > most:
        matching.sort(key=rank)
    if wanted:
        matching.sort(key=lambda each: name(each).casefold() != wanted)
    last = max(1, -(-len(matching) // most))
    page = min(page, last)
    begin = (page - 1) * most
    return Listing(
        rows=matching[begin : begin + most],
        text=text.strip(),
        page=page,
        first=begin + 1,
        matching=len(matching),
        total=len(found),
    )
