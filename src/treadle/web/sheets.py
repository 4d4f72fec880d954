"""CSV, sent while it is read: jobs in pages, so that a large file costs no memory here and no long read there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from starlette.types import Send

from ..core.sheet import line
from .stream import EventStream

MEDIA: Final = "text/csv"
_PART: Final = 32 << 10


class Sheet(EventStream):
    """A file to keep: its name says what it is, and of when. As with any stream, a reader that does not read is let go;
    and a file that breaks off has no end, so that nobody takes it for the whole."""

    def __init__(
        self,
        what: str,
        columns: Sequence[str],
        rows: AsyncIterator[Sequence[Any]],
        leave: Callable[[], None] = lambda: None,
        is_still: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        super().__init__(_text(columns, rows), leave, is_still)
        del self.headers["x-accel-buffering"]
        self.headers["content-type"] = f"{MEDIA}; charset=utf-8; header=present"
        name = f"treadle-{what}-{datetime.now(UTC):%Y%m%d-%H%M%S}.csv"
        self.headers["content-disposition"] = f'attachment; filename="{name}"'

    async def _break_off(self, send: Send) -> None:
        """Without an end."""


async def _text(columns: Sequence[str], rows: AsyncIterator[Sequence[Any]]) -> AsyncIterator[bytes]:
    """In parts of some kilobytes: one for each line would be mostly frames."""
    part, size = [line(columns)], 0
    try:
        async for row in rows:
            part.append(line(row))
            size += len(part[-1])
            if size > _PART:
                yield _bytes(part)
                part, size = [], 0
        yield _bytes(part)
    finally:
        close = getattr(rows, "aclose", None)
        if close is not None:  # pragma: no branch - all of ours are generators
            await close()


def _bytes(part: list[str]) -> bytes:
    return "".join(part).encode("utf-8", "replace")


async def at_once(rows: Iterable[Sequence[Any]]) -> AsyncIterator[Sequence[Any]]:
    """What is wholly in hand."""
    for row in rows:
        yield row
