"""Shapes that several nouns share: how a list is asked for and answered, what an act answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct

from ...core import ids, names
from ..plain import plain
from ..problem import Problem

T = TypeVar("T")

PAGE: Final = 50
LARGEST: Final = 200

Limit = Annotated[int, Meta(ge=1, le=LARGEST, description="How many at most.")]
Cursor = Annotated[str, Meta(max_length=1000, description="`next` of the page before.")]
FilterText = Annotated[
    str, Meta(max_length=4000, description="The filter language: `state:failed queue:mail age:>1h`.")
]
Name = Annotated[str, Meta(max_length=128)]
Reason = Annotated[str, Meta(max_length=1024, description="Why; kept in the audit.")]
DurationText = Annotated[float | str, Meta(description="Seconds, or text such as `1h30m`.")]
Instant = Annotated[str, Meta(max_length=40, description="RFC 3339 with a zone: `2026-11-15T09:00:00Z`.")]
Version = Annotated[int, Meta(ge=0, le=2**53, description="Refused with 409 if it has another version meanwhile.")]


class PageQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = PAGE
    cursor: Cursor | None = None


class Listed(Struct, kw_only=True):
    """A page of a list. `next` asks for the page after it; null: this is the last."""

    items: list[Any]
    next: str | None = None


def paged(found: Sequence[T], key: Callable[[T], str], query: PageQuery) -> tuple[list[T], str | None]:
    """One page of what is wholly in hand, by key."""
    after = sorted((each for each in found if query.cursor is None or key(each) > query.cursor), key=key)
    page = after[: query.limit]
    return page, key(page[-1]) if len(after) > len(page) else None


def listed(found: Sequence[Any], key: Callable[[Any], str], query: PageQuery) -> dict[str, Any]:
    page, following = paged(found, key, query)
    return {"items": [plain(each) for each in page], "next": following}


def job_id(text: str) -> str:
    """An id from a path: what is no id is no job."""
    if not ids.is_id(text):
        raise Problem("not_found", "there is no such job: an id is a UUID in lower case")
    return text


def name_of(kind: str, text: str) -> str:
    """A name from a path: one that cannot be is not there."""
    try:
        return names.check_name(kind, text)
    except ValueError:
        raise Problem("not_found", f"there is no such {kind}") from None
