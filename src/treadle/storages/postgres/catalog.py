"""The catalog: what pods have said of their tasks and queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from ...core import catalog
from ...core.catalog import Entry
from ...core.pod import Descriptor, PodCard
from . import rows, sql
from .talk import Talk

T = TypeVar("T")

# In the order of their names, so that two pods that register at once wait for each other rather than block each other.
_SEE: Final = f"""
insert into treadle.catalog (kind, name, descriptor, seen_at)
select u.kind, u.name, u.descriptor, {sql.CLOCK}
from unnest($2::text[], $3::text[], $4::text[]) as u (kind, name, descriptor)
order by u.kind, u.name
on conflict (kind, name) do update set descriptor = excluded.descriptor, seen_at = excluded.seen_at
"""  # noqa: S608 - the SQL is put together from our own parts
_SEE_AGAIN: Final = """
with known as (
    select c.kind, c.name
    from treadle.catalog as c
    join unnest($2::text[], $3::text[]) as u (kind, name) using (kind, name)
    order by c.kind, c.name
    for update of c
)
update treadle.catalog as c
set seen_at = greatest(c.seen_at, to_timestamp($1::float8))
from known as k
where c.kind = k.kind and c.name = k.name
"""
_ENTRIES: Final = "select kind, name, descriptor, date_part('epoch', seen_at) from treadle.catalog order by kind, name"
_as_descriptor: Final = msgspec.json.Decoder(Descriptor).decode


def see(card: PodCard, now: float | None) -> Talk[None]:
    """A pod has come: what it says of its tasks and queues is the last word."""
    known = [
        (*found, rows.json_text(descriptor))
        for about, descriptor in card.about.items()
        if (found := catalog.parts(about)) is not None
    ]
    if known:
        yield _SEE, (now, *([each[n] for each in known] for n in range(3)))


def see_again(card: str, at: float) -> Talk[None]:
    """A pod goes: it was there until then. Its words are not heard again, a newer pod's may have come since."""
    known = [found for about in rows.card_of("", card).about if (found := catalog.parts(about)) is not None]
    if known:
        yield _SEE_AGAIN, (at, [kind for kind, _ in known], [name for _, name in known])


def entries() -> Talk[list[Entry]]:
    found = yield _ENTRIES, ()
    return [
        Entry(kind=kind, name=name, descriptor=_descriptor(text), seen_at=seen_at)
        for kind, name, text, seen_at in found
        if kind in catalog.KINDS
    ]


def _descriptor(text: str) -> Descriptor:
    try:
        return _as_descriptor(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Descriptor()  # a damaged row


class Catalog:
    if TYPE_CHECKING:

        def _read(self, make: Callable[[], Talk[T]]) -> Awaitable[T]: ...

    async def catalog(self) -> Sequence[Entry]:
        return await self._read(entries)
