"""Muted causes: a row each, gone when somebody ends it; one whose time is over is not seen."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ...core.audit import AuditLine
from ...core.mute import Mute
from ...ports import Clock
from . import audit
from .writer import Operation

T = TypeVar("T")

_LIST: Final = """
select cause, at, until, who from treadle_mute where until is null or until > ? order by cause
"""
_SAVE: Final = """
insert into treadle_mute (cause, at, until, who) values (?, ?, ?, ?)
on conflict (cause) do update set at = excluded.at, until = excluded.until, who = excluded.who
"""
_MUTED: Final = "select 1 from treadle_mute where cause = ? and (until is null or until > ?)"
_END: Final = "delete from treadle_mute where cause = ?"


class SQLiteMutes:
    """The verbs. `_read`, `_write` and `_clock` are the storage's own."""

    _clock: Clock

    async def mutes(self) -> Sequence[Mute]:
        found = await self._read(lambda db: db.execute(_LIST, (self._clock.now(),)).fetchall())
        return [Mute(cause=cause, at=at, until=until, who=who) for cause, at, until, who in found]

    async def mute(self, mute: Mute, *, line: AuditLine | None = None) -> None:
        def operation(db: sqlite3.Connection, _: object) -> None:
            if line is None or not audit.is_written(db, line.id):
                now = self._clock.now()
                db.execute(_SAVE, (mute.cause, now, mute.until, mute.who))
                audit.write(db, line, now)

        await self._write(operation, grows=True)

    async def unmute(self, cause: str, *, line: AuditLine | None = None) -> bool:
        def operation(db: sqlite3.Connection, _: object) -> bool:
            now = self._clock.now()
            is_muted = db.execute(_MUTED, (cause, now)).fetchone() is not None
            db.execute(_END, (cause,))
            if is_muted:
                audit.write(db, line, now)
                return True
            return line is not None and audit.is_written(db, line.id)

        return await self._write(operation)

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError

    async def _write(
        self, operation: Operation[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
    ) -> T:
        raise NotImplementedError
