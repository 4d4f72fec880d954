"""Muted causes: a row each, gone when somebody ends it; one whose time is over is not seen."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from ...core.audit import AuditLine
from ...core.mute import Mute
from . import audit, rows, sql
from .desk import Desks
from .talk import BEGIN, COMMIT, Talk

_NOW: Final = f"date_part('epoch', {sql.CLOCK})"
_LIST: Final = f"select cause, at, until, who from treadle.mute where until is null or until > {_NOW} order by cause"
_SAVE: Final = f"""
insert into treadle.mute (cause, at, until, who) values ($2::text, {_NOW}, $3::float8, $4::text)
on conflict (cause) do update set at = excluded.at, until = excluded.until, who = excluded.who
returning at
"""
_END: Final = f"delete from treadle.mute where cause = $2::text returning coalesce(until > {_NOW}, true), {_NOW}"


class PostgresMutes:
    """The verbs, as part of the storage."""

    _desks: Desks
    _now: Callable[[], float | None]
    _read: Callable[..., Coroutine[Any, Any, Any]]

    async def mutes(self) -> Sequence[Mute]:
        now = self._now()
        found: list[Mute] = await self._read(lambda: mutes(now))
        return found

    async def mute(self, mute: Mute, *, line: AuditLine | None = None) -> None:
        now = self._now()
        await self._desks.mine().slow.run(lambda: save(mute, line, now))

    async def unmute(self, cause: str, *, line: AuditLine | None = None) -> bool:
        now = self._now()
        return rows.is_text(cause) and await self._desks.mine().slow.run(lambda: end(cause, line, now))


def mutes(now: float | None) -> Talk[list[Mute]]:
    found = yield _LIST, (now,)
    # In the order of code points, whatever the database's collation is.
    return sorted((Mute(cause=row[0], at=row[1], until=row[2], who=row[3]) for row in found), key=lambda it: it.cause)


def save(mute: Mute, line: AuditLine | None, now: float | None) -> Talk[None]:
    yield BEGIN
    if line is None or not (yield from audit.is_written(line.id)):
        ((clock,),) = yield _SAVE, (now, mute.cause, mute.until, mute.who)
        yield from audit.write(line, clock)
    yield COMMIT


def end(cause: str, line: AuditLine | None, now: float | None) -> Talk[bool]:
    yield BEGIN
    found = yield _END, (now, cause)
    was_muted = bool(found) and bool(found[0][0])
    if was_muted:
        yield from audit.write(line, found[0][1])
    elif line is not None:
        was_muted = yield from audit.is_written(line.id)
    yield COMMIT
    return was_muted
