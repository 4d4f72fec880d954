"""Deploys: a row for each version of the user's code, written when a pod registers and never on the way of a job."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ...core import deploy
from ...core.deploy import KEPT, Deploy
from ...core.pod import PodCard
from .rows import Database

T = TypeVar("T")

_SEE: Final = """
insert into treadle_deploy (version, first_at, seen_at) values (?1, ?2, ?2)
on conflict (version) do update set seen_at = excluded.seen_at
"""
_FORGET: Final = """
delete from treadle_deploy
where (seen_at, version) < (
    select seen_at, version from treadle_deploy order by seen_at desc, version desc limit 1 offset ?
)
"""
_LIST: Final = "select version, first_at, seen_at from treadle_deploy order by seen_at desc, version desc limit ?"


def see(db: Database, card: PodCard, now: float) -> None:
    """A pod has come: its version was first seen now, or is seen again."""
    if card.worker_version:
        db.execute(_SEE, (card.worker_version, now))
        db.execute(_FORGET, (KEPT - 1,))


def known(db: Database) -> list[Deploy]:
    return deploy.in_order(db.execute(_LIST, (KEPT,)).fetchall())


class Deploys:
    if TYPE_CHECKING:

        def _read(self, read: Callable[[sqlite3.Connection], T]) -> Awaitable[T]: ...

    async def deploys(self) -> Sequence[Deploy]:
        return await self._read(known)
