"""Muted causes in the reference storage."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec.structs import replace

from ...core.audit import AuditLine
from ...core.mute import Mute, holds
from ...ports import Clock
from .operations import keep_line


class MemoryMutes:
    _clock: Clock
    _lock: threading.RLock
    _audit: dict[str, AuditLine]

    def __init__(self) -> None:
        self._mutes: dict[str, Mute] = {}

    async def mutes(self) -> Sequence[Mute]:
        with self._lock:
            now = self._clock.now()
            return [mute for _, mute in sorted(self._mutes.items()) if holds(mute, now)]

    async def mute(self, mute: Mute, *, line: AuditLine | None = None) -> None:
        with self._lock:
            if line is None or line.id not in self._audit:
                now = self._clock.now()
                self._mutes[mute.cause] = replace(mute, at=now)
                keep_line(self._audit, line, now)

    async def unmute(self, cause: str, *, line: AuditLine | None = None) -> bool:
        with self._lock:
            now = self._clock.now()
            mute = self._mutes.pop(cause, None)
            if mute is not None and holds(mute, now):
                keep_line(self._audit, line, now)
                return True
            return line is not None and line.id in self._audit
