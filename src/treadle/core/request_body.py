"""How long a request's body may take, and how large it may be.

A body has ten seconds, and one more for every 64 KiB that have arrived: a small one is over soon, a large one may take
its time as long as it comes at a rate that a slow line has. What a sender only announces gives it no time.
"""

from __future__ import annotations

from typing import Final, Literal

PATIENCE: Final = 10.0  # seconds
SLOWEST: Final = 64 * 1024  # bytes a second, after the first ten seconds

LARGEST: Final = 2 * 1024 * 1024
LARGEST_ANONYMOUS: Final = 4 * 1024  # where nobody is asked who he is; a route may say more
LARGEST_UNREAD: Final = 64 * 1024  # what is left of a refused request is let pass by, to keep its connection

Length = int | Literal["unknown"] | None


def time_for(received: int) -> float:
    """Within how many seconds of its beginning a body must be there of which so many bytes have come.

    >>> time_for(0), time_for(2 * 1024 * 1024)
    (10.0, 42.0)
    """
    return PATIENCE + received / SLOWEST


def length_of(content_length: str | None, transfer_encoding: str | None) -> Length:
    """What the headers say of a body: None if there is none, else its length, "unknown" if they do not tell."""
    if transfer_encoding is not None:
        return "unknown"
    if content_length is None:
        return None
    if not content_length.isascii() or not content_length.isdigit() or len(content_length) > 20:
        return "unknown"
    return int(content_length) or None


def is_too_large(length: Length, received: int, most: int) -> bool:
    """By what its headers say, or by what has come of it."""
    return received > most or (isinstance(length, int) and length > most)
