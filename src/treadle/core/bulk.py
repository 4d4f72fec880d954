"""How a bulk of jobs is cut into transactions.

Up to 16 MiB of arguments are one transaction: all jobs are in, or none. More than that would be held in memory several
times over, and would keep the writer from all others for as long as it takes to be written: the beats of pods among
them. So beyond 16 MiB a bulk is cut into pieces by bytes, and its iterator is read no further than the next piece
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

MOST: Final = 16 << 20  # bytes of one transaction
ROW: Final = 512  # what a job costs beside its arguments: many small ones are cut too


def size(text: str) -> int:
    """The bytes of a text in UTF-8. Most arguments are ASCII, where asking costs nothing.

    >>> size("abc"), size("ü")
    (3, 2)
    """
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def take(calls: Iterator[T], arguments: Callable[[T], str], most: int = MOST) -> tuple[list[T], bool]:
    """The calls up to the first one that does not fit in one transaction any more (it is among them), and whether those
    are all."""
    taken: list[T] = []
    left = most
    for call in calls:
        taken.append(call)
        left -= size(arguments(call))
        if left < 0:
            return taken, False
    return taken, True


def cut(calls: Iterable[T], arguments: Callable[[T], str], most: int = MOST, row: int = ROW) -> Iterator[list[T]]:
    """The calls in pieces of at most so many bytes, none of them empty."""
    piece: list[T] = []
    left = most
    for call in calls:
        weight = size(arguments(call)) + row
        if piece and weight > left:
            yield piece
            piece, left = [], most
        piece.append(call)
        left -= weight
    if piece:
        yield piece
