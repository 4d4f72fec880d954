"""Job ids: UUIDv7, made by the client, so that an insert can be repeated and rows arrive in the order of their index.

Monotonic within a process: each id is greater than the last one, even when many are made in one millisecond or the
clock is set back. The shell keeps `last` and draws `entropy`; this module only does the arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# 48 bits of milliseconds | version (4) | 12 bits of chance | variant (2) | 62 bits of chance (RFC 9562, section 5.7)
_MARKS: Final = 7 << 76 | 2 << 62
_LOW: Final = (1 << 62) - 1
_CHANCE: Final = ((1 << 12) - 1) << 64 | _LOW
_TAIL: Final = (1 << 64) - 1
_STEP: Final = (1 << 32) - 1
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VERSION_AT: Final = 14


def uuid7(unix_ms: int, last: int, entropy: int) -> int:
    """The next id after `last` (0 at first), from 76 random bits; `unix_ms` is below 2**48, the year 10889.

    While the clock does not advance beyond `last`, the id is `last` plus a random step, so that ids made in one
    millisecond cannot be guessed from one another. A step that does not fit any more goes on in the next millisecond.
    """
    ms = last >> 80
    if unix_ms <= ms:
        step = 1 + (entropy & _STEP)
        if (last & _LOW) + step <= _LOW:
            return last + step | _MARKS
        unix_ms = ms + 1
    return unix_ms << 80 | entropy & _CHANCE | _MARKS


def text(value: int) -> str:
    """The id in its canonical form: 36 characters, lower case."""
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def texts(values: Iterable[int]) -> list[str]:
    """The same of many. Those that were made together begin alike, and that is written once."""
    made: list[str] = []
    head, start = -1, ""
    for value in values:
        if value >> 64 != head:
            head, start = value >> 64, text(value)[:19]
        tail = f"{value & _TAIL:016x}"
        made.append(f"{start}{tail[:4]}-{tail[4:]}")
    return made


def is_id(text: str) -> bool:
    """Whether the text is a UUID in canonical form. Any version: another client may make its own kind."""
    return _ID.fullmatch(text) is not None


def unix_ms_of(text: str) -> int:
    """When the id was made, in milliseconds since the epoch, by the clock of its maker."""
    if not is_id(text) or text[_VERSION_AT] != "7":
        raise ValueError(f"{text[:40]!r} is not a UUIDv7 in canonical form")
    return int(text[:8] + text[9:13], 16)
