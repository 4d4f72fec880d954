"""Text that comes from anywhere, made fit to be kept: what every storage can hold, and not too much of it."""

from __future__ import annotations


def cut(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, with an ellipsis where something was left out."""
    # Before all else: a character is a byte or more, and nobody should encode a gigabyte to keep a line of it.
    told = text[: limit + 1].replace("\x00", "\\x00").encode("utf-8", "backslashreplace")
    if len(told) <= limit:
        return told.decode()
    return told[: limit - 3].decode("utf-8", "ignore") + "…"
