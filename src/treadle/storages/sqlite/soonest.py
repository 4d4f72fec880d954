"""What comes next: jobs that lie ready, or wait for their retry, by their run_at.

Each index keeps the order of time within one task and priority. The pieces are merged, and one is not opened before its
first job can be next: the page of a thousand pieces reads a few of them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from . import places
from .rows import Database
from .sql import statement
from .terms import Terms

CHUNK: Final = 64
LARGEST: Final = 4_096
Place: TypeAlias = tuple[float, int]


class _Piece:
    """One piece of an index, from a place on; a few rows at a time, so that no statement stays open."""

    def __init__(self, db: Database, sql: str, key: tuple[Any, ...], after: Place) -> None:
        self._db = db
        self._sql = sql
        self._key = key
        self._after = after
        self._size = CHUNK
        self._ready: list[Place] = []  # the next one is the last

    def next(self) -> Place | None:
        if not self._ready and self._size:
            found = self._db.execute(self._sql, (*self._key, *self._after, self._size)).fetchall()
            # Rows that somebody damaged have no place in this order: a text as the time sorts behind all numbers.
            self._ready = [row for row in reversed(found) if isinstance(row[0], float)]
            self._size = min(self._size * 4, LARGEST) if len(self._ready) == self._size else 0
            if self._ready:
                self._after = self._ready[0]
        return self._ready.pop() if self._ready else None


def merged(db: Database, parts: Terms, after: Place, until: float = math.inf) -> Iterator[Place]:
    """(run_at, row number) of every job that may be next, after a place and until a time."""
    # Of the very instant there may be some that come after the place: they count as later.
    since = math.nextafter(after[0], -math.inf)
    found: Iterator[tuple[Any, ...]]
    if parts.retrying:
        sql, found = statement("upcoming_retries"), places.heads_of_retries(db, parts, since)
    else:
        sql, found = statement("upcoming"), places.heads(db, parts, since)
    # (the least that its next place can be, a number to tell equals apart, the piece)
    heap = [
        (later, -1, n, _Piece(db, sql, tuple(key), after))
        for n, (*key, later) in enumerate(found)
        if isinstance(later, float)
    ]
    heapq.heapify(heap)
    while heap:
        at, seq, n, piece = heap[0]
        if at > until:
            return
        if seq >= 0:
            yield at, seq
        place = piece.next()
        if place is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (*place, n, piece))
