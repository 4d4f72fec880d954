"""Lists of a page: as much as it shows of what may be twenty thousand, with a search by name and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct

from ...core.listing import Listing, listing
from ...core.view import QueueView
from ..routing import Call

T = TypeVar("T")

OFFERED: Final = 200  # names that a form offers


class Asked(Struct):
    """`name`: a part of the names that are looked for."""

    name: Annotated[str, Meta(max_length=128)] = ""
    page: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


def listed(
    call: Call[Any, Any], found: Sequence[T], name: Callable[[T], str], rank: Callable[[T], Any] | None = None
) -> Listing[T]:
    """What the query of the call asks for."""
    return listing(found, name, rank=rank, text=call.query.name, page=call.query.page)


def rank(queue: QueueView) -> tuple[Any, ...]:
    """Of many queues, those that are stopped or have most to do come first."""
    busy = queue.ready + queue.running + queue.scheduled + queue.waiting
    return not (queue.paused or queue.cool_until), -queue.running, -queue.ready, -busy, -queue.failed, queue.name


async def queue_names(call: Call[Any, Any]) -> list[str]:
    """Names of queues for a form to offer. Others can be typed."""
    found = await call.web.counts.get(("queues",), call.app.queues.list)
    return sorted(each.name for each in listing(found, lambda each: each.name, rank=rank, most=OFFERED).rows)
