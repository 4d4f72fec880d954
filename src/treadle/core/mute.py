"""Mute: a cause of failures that people know of, and need not see first. It hides nothing from who asks for it, and
changes no job: the group is folded, and left out of what is shown at the top."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

LONGEST_CAUSE: Final = 1024  # bytes: it is the row's key


class Mute(Struct, frozen=True, kw_only=True):
    """`at` and `until` are the storage's instants; without `until` it lasts until somebody ends it."""

    cause: str
    at: float = 0.0
    until: float | None = None
    who: str | None = None


def check_cause(cause: str) -> str:
    """ValueError, unless it can be one: task, exception and place with colons between them."""
    if cause.count(":") < 2:
        raise ValueError("a cause is task:exception:place, as `treadle jobs failures --json` shows it")
    if "\x00" in cause or len(cause.encode("utf-8", "replace")) > LONGEST_CAUSE:
        raise ValueError(f"a cause has at most {LONGEST_CAUSE} bytes, and no null among them")
    return cause


def holds(mute: Mute, now: float) -> bool:
    return mute.until is None or mute.until > now
