"""Deploy: a version of the user's own code, and when a worker with it was first seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

LONGEST_VERSION: Final = 64
# So many versions are kept, those that registered last.
KEPT: Final = 100


class Deploy(Struct, frozen=True, kw_only=True):
    """`first_at` and `seen_at` are the storage's: when the first worker with this version registered, and when the last
    one did."""

    version: str
    first_at: float
    seen_at: float


def check_version(text: str) -> str:
    """The text, if it can be a version: one line that stands in a list. ValueError says what is wrong."""
    if len(text) > LONGEST_VERSION or not text.isprintable() or text != text.strip():
        raise ValueError(
            f"worker_version must be one line of at most {LONGEST_VERSION} characters: 2026.11.3, or a commit"
        )
    return text


def in_order(rows: Iterable[tuple[Any, Any, Any]]) -> list[Deploy]:
    """The deploys in rows of (version, first_at, seen_at), the one that was first seen last before the others. A row
    that no worker can have written is left out."""
    found = [Deploy(version=row[0], first_at=row[1], seen_at=row[2]) for row in rows if _is_sound(*row)]
    return sorted(found, key=lambda each: (-each.first_at, each.version))


def _is_sound(version: object, first_at: object, seen_at: object) -> bool:
    if not isinstance(version, str) or not version:
        return False
    try:
        check_version(version)
    except ValueError:
        return False
    return all(isinstance(at, float) and _FIRST <= at < _AFTER_LAST for at in (first_at, seen_at))


# The years 1 to 9999, as a datetime has them.
_FIRST: Final = -62135596800.0
_AFTER_LAST: Final = 253402300800.0
