"""Binary: new jobs in COPY's own binary form.

A driver that encodes records looks up how to encode each value of each row, which costs more than all else that an
enqueue of many does. Jobs that are enqueued together have nearly everything in common but their ids and arguments: here
what they have in common is encoded once, and every row is put together of four pieces.

The form: a header, rows, a trailer. A row is the number of its columns, and each column its length and its bytes, or a
length of -1 for null. Numbers are big-endian, an instant is microseconds since 2000. If the server finds anything else
in a column than it expects, it refuses the whole, and the ordinary insert does it (`bulk`).
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ...core.job import NewJob
from .talk import BadValue

COLUMNS: Final = (
    "id", "args", "queue", "task", "priority", "run_at", "created_at", "max_attempts", "timeout", "pinned", "format",
    "tags", "meta", "reason",
)  # fmt: skip

_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_TRAILER: Final = struct.pack("!h", -1)
_ROW: Final = struct.pack("!hi", len(COLUMNS), 16)  # and the id, of sixteen bytes, is its first
_CHUNK: Final = 400  # rows to a piece: the server works while the next one is put together
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NULL: Final = struct.pack("!i", -1)
_TEXT_OID: Final = 25
_length: Final = struct.Struct("!i").pack
# What the tables can hold; beyond it, the ordinary insert says what is wrong.
_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC).timestamp()
_LAST: Final = datetime(9999, 12, 30, tzinfo=UTC).timestamp()
_UNFIT: Final = (ValueError, struct.error, OverflowError)


async def stream(jobs: Sequence[NewJob], clock: datetime) -> AsyncIterator[bytes]:
    """The jobs as the server wants them; BadValue if one of them has no such form."""
    for piece in pieces(jobs, clock):
        yield piece


def pieces(jobs: Sequence[NewJob], clock: datetime) -> Iterator[bytes]:
    yield _HEADER
    row = _Rows(clock)
    for start in range(0, len(jobs), _CHUNK):
        try:
            yield b"".join([part for new in jobs[start : start + _CHUNK] for part in row(new)])
        except _UNFIT as error:
            raise BadValue(f"{type(error).__name__}: {error}") from error
    yield _TRAILER


class _Rows:
    """Jobs as rows. Remembers what it last encoded: most jobs have it in common with the one before."""

    def __init__(self, clock: datetime) -> None:
        self._clock = clock
        self._common: tuple[Any, ...] | None = None
        self._encoded = b""

    def __call__(self, new: NewJob) -> tuple[bytes, ...]:
        common = (
            new.queue, new.task, new.priority, new.run_at, new.delay, new.max_attempts, new.timeout, new.pinned,
            new.format, new.tags, new.meta, new.reason,
        )  # fmt: skip
        if common != self._common:
            self._encoded = b"".join(self._columns(new))
            self._common = common
        args = new.args.encode()
        id = bytes.fromhex(new.id.replace("-", ""))
        if len(id) != 16:
            raise ValueError(f"{new.id!r} is no UUID")
        return _ROW, id, _length(len(args)), args, self._encoded

    def _columns(self, new: NewJob) -> Iterator[bytes]:
        yield _text(new.queue)
        yield _text(new.task)
        yield struct.pack("!ih", 2, new.priority)
        yield _instant(due(new, self._clock))
        yield _instant(self._clock)
        yield _NULL if new.max_attempts is None else struct.pack("!ii", 4, new.max_attempts)
        yield _NULL if new.timeout is None else struct.pack("!id", 8, new.timeout)
        yield struct.pack("!i?", 1, new.pinned)
        yield struct.pack("!ih", 2, new.format)
        yield _texts(new.tags) if new.tags else _NULL
        yield _NULL if new.meta is None else _text(new.meta)
        yield _NULL if new.reason is None else _text(new.reason)


def due(new: NewJob, clock: datetime) -> datetime:
    if new.run_at is None:
        return clock + timedelta(seconds=new.delay) if new.delay else clock
    if not _FIRST < new.run_at < _LAST:
        raise ValueError(f"the instant {new.run_at} cannot be stored")
    return max(clock, datetime.fromtimestamp(new.run_at, UTC))


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _length(len(encoded)) + encoded


def _texts(values: Iterable[str]) -> bytes:
    """An array of one dimension that begins at 1, without nulls."""
    elements = [_text(value) for value in values]
    array = struct.pack("!iiiii", 1, 0, _TEXT_OID, len(elements), 1) + b"".join(elements)
    return _length(len(array)) + array


def _instant(value: datetime) -> bytes:
    return struct.pack("!iq", 8, (value - _EPOCH) // _MICROSECOND)
