"""Deploy: a version of the user's own code, and when a worker with it was first seen."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

LONGEST_VERSION: Final = 64
# So many versions are kept, those that were seen last.
KEPT: Final = 100


class Deploy(Struct, frozen=True, kw_only=True):
    """`first_at` and `seen_at` are the storage's: when the first worker with this version registered, and when the last
    one registered or signed off."""

    version: str
    first_at: float
    seen_at: float


def check_version(text: str) -> str:
    """The text, if it can be a version: one line that stands in a list. ValueError says what is wrong."""
    if len(text) > LONGEST_VERSION or not text.isprintable() or text != text.strip():
        raise ValueError(
            f"worker_version is one line of at most {LONGEST_VERSION} characters, for example 2026.11.3 or a commit"
        )
    return text
