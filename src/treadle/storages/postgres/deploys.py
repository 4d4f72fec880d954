"""Deploys: a row for each version of the user's code, written when a pod registers and never on the way of a job."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ...core import deploy
from ...core.deploy import KEPT, Deploy
from ...core.pod import PodCard
from . import sql
from .talk import Talk

T = TypeVar("T")

_NOW: Final = f"date_part('epoch', {sql.CLOCK})"
_SEE: Final = f"""
insert into treadle.deploy (version, first_at, seen_at) values ($2::text, {_NOW}, {_NOW})
on conflict (version) do update set seen_at = excluded.seen_at
"""
# A row that another pod is writing is passed over: that version is seen again just now.
_FORGET: Final = """
delete from treadle.deploy
where version = any (array(
    select d.version from treadle.deploy as d
    where (d.seen_at, d.version) < (
        select o.seen_at, o.version from treadle.deploy as o
        order by o.seen_at desc, o.version desc limit 1 offset $1::int
    )
    for update skip locked
))
"""
_LIST: Final = "select version, first_at, seen_at from treadle.deploy order by seen_at desc, version desc limit $1::int"


def see(card: PodCard, now: float | None) -> Talk[None]:
    """A pod has come: its version was first seen now, or is seen again."""
    if card.worker_version:
        yield _SEE, (now, card.worker_version)
        yield _FORGET, (KEPT - 1,)


def known() -> Talk[list[Deploy]]:
    found = yield _LIST, (KEPT,)
    return deploy.in_order((version, first_at, seen_at) for version, first_at, seen_at in found)


class Deploys:
    if TYPE_CHECKING:

        def _read(self, make: Callable[[], Talk[T]]) -> Awaitable[T]: ...

    async def deploys(self) -> Sequence[Deploy]:
        return await self._read(known)
