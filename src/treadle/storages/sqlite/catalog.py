"""The catalog: what pods have said of their tasks and queues."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from ...core import catalog
from ...core.catalog import Entry
from ...core.pod import Descriptor, PodCard
from . import rows
from .rows import Database

T = TypeVar("T")

_SEE: Final = """
insert into treadle_catalog (kind, name, descriptor, seen_at)
values (?, ?, ?, ?)
on conflict (kind, name) do update set descriptor = excluded.descriptor, seen_at = excluded.seen_at
"""
_as_descriptor: Final = msgspec.json.Decoder(Descriptor).decode


def see(db: Database, card: PodCard, now: float) -> None:
    """A pod has come: what it says of its tasks and queues is the last word."""
    for about, descriptor in card.about.items():
        if (found := catalog.parts(about)) is not None:
            db.execute(_SEE, (*found, rows.json_text(descriptor), now))


def see_again(db: Database, card: PodCard, at: float) -> None:
    """A pod goes: it was there until then. Its words are not heard again, a newer pod's may have come since."""
    for about in card.about:
        if (found := catalog.parts(about)) is not None:
            db.execute("update treadle_catalog set seen_at = max(seen_at, ?) where kind = ? and name = ?", (at, *found))


def entries(db: Database) -> list[Entry]:
    found = db.execute("select kind, name, descriptor, seen_at from treadle_catalog order by kind, name")
    return [
        Entry(kind=kind, name=name, descriptor=_descriptor(text), seen_at=seen_at)
        for kind, name, text, seen_at in found
        if kind in catalog.KINDS and isinstance(name, str) and isinstance(seen_at, float)
    ]


def _descriptor(text: object) -> Descriptor:
    try:
        return _as_descriptor(str(text))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Descriptor()  # a damaged row


class Catalog:
    if TYPE_CHECKING:

        def _read(self, read: Callable[[sqlite3.Connection], T]) -> Awaitable[T]: ...

    async def catalog(self) -> Sequence[Entry]:
        return await self._read(entries)
