"""Blocker: another session or process that holds a lock which our calls wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from .duration import words
from .text import visible

LONGEST_NAME: Final = 60

Stops: TypeAlias = Literal["reads", "writes", "rows"]
"""What a lock stops: all that reads (and writes), all that writes, or what needs the same rows."""


class Blocker(Struct, frozen=True, kw_only=True):
    """`details` are what the storage may see of the holder: its user, its program, what it does. Texts of statements
    are left out: they may hold a secret. `seconds` is for how long its transaction has been open."""

    what: str  # "table treadle.job", "the database file"
    who: str  # "session 1234", "process 88"
    details: tuple[str, ...] = ()
    seconds: float | None = None
    stops: Stops = "writes"
    remedy: str = ""  # a command

    @property
    def text(self) -> str:
        """
        >>> Blocker(what="table t", who="session 7", details=("user ann", "idle in transaction"), seconds=240.0).text
        'table t is locked by session 7 (user ann, idle in transaction for 4m)'
        """
        said = ", ".join(visible(each)[:LONGEST_NAME] for each in self.details if each)
        if self.seconds is not None:
            said = f"{said} for {words(float(round(self.seconds)))}" if said else words(float(round(self.seconds)))
        return f"{self.what} is locked by {self.who}" + (f" ({said})" if said else "")


def sentence(blockers: Sequence[Blocker]) -> str:
    """The first of them with the command that ends it, and how many more there are; empty if there is none.

    >>> sentence([Blocker(what="table t", who="session 7", remedy="SELECT pg_terminate_backend(7)")])
    'table t is locked by session 7: SELECT pg_terminate_backend(7)'
    """
    if not blockers:
        return ""
    first = blockers[0]
    more = f", and {len(blockers) - 1} more hold locks" if len(blockers) > 1 else ""
    return first.text + more + (f": {first.remedy}" if first.remedy else "")
