"""Storages behind a seal: one that refuses every verb that writes, and one that tells the audit whose request it was.

The first stands between every page and the database, for everybody: a GET cannot write, whatever code it reaches. What
it lets through is a list of the verbs that read; a verb that somebody adds to the port is refused until it is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, NoReturn, cast

from msgspec.structs import replace

from ..core.audit import AuditLine
from ..core.errors import ReadOnly
from ..core.job import Change, QueueChange
from ..core.operation import Operation
from ..ports import Applied, Storage

READS: Final = frozenset(
    {
        "answer_of", "audit", "awaited", "blockers", "capabilities", "catalog", "count", "deploys", "dump", "facts",
        "failures", "find", "fires", "get", "kinds", "limits", "listen", "locks", "mutes", "operation", "operations",
        "pods", "queues", "readings", "rollups", "schedules", "schema", "plan", "sql", "signals_work", "time",
        "timeline", "vitals", "due_tasks", "logs", "progress", "checkpoint", "open", "is_writable",
    }
)  # fmt: skip

# "operator, request 019a…": on whose behalf the running request acts.
signature: ContextVar[str] = ContextVar("signature", default="")


def read_only(storage: Storage) -> Storage:
    """The storage, for reading only: ReadOnly for all else."""
    return cast("Storage", _ReadOnly(storage))


def signed(storage: Storage) -> Storage:
    """The storage; what it writes into the audit ends with the `signature`."""
    return cast("Storage", _Signed(storage))


class _ReadOnly:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        if name in READS:
            return getattr(self._storage, name)
        if name.startswith("_") or not hasattr(self._storage, name):
            raise AttributeError(name)
        return _refuse(name)


def _refuse(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise ReadOnly(f"{name}: this storage is open for reading only")

    return refuse


class _Signed:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if name not in _LINED:
            return found

        async def call(*args: Any, line: AuditLine | None = None, **kwargs: Any) -> Any:
            return await found(*args, line=_signed(line), **kwargs)

        return call

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        return await self._storage.apply([_signed_change(each) for each in changes])

    async def note(self, lines: Sequence[AuditLine]) -> None:
        await self._storage.note([cast("AuditLine", _signed(line)) for line in lines])

    async def save_operation(self, operation: Operation, expected: int | None) -> Operation | None:
        """Its own line is written with the row, and names who; this one names the request."""
        saved = await self._storage.save_operation(operation, expected)
        if saved is not None and signature.get():
            act = "start" if expected is None else "stop" if saved.state == "stopping" else "resume"
            by = saved.by if expected is None else saved.steered_by
            line = AuditLine(
                id=f"{saved.id}:{saved.version:08}:request", act=f"operations.{act}", subject=saved.id, by=by
            )
            await self._storage.note([cast("AuditLine", _signed(replace(line, operation=saved.id)))])
        return saved


_LINED: Final = frozenset({"answer", "save_schedule", "save_limit", "remove_limit", "free", "mute", "unmute"})


def _signed_change(change: Change | QueueChange) -> Change | QueueChange:
    if isinstance(change, QueueChange):
        return replace(change, told=signature.get())
    return change if change.line is None else replace(change, line=_signed(change.line))


def _signed(line: AuditLine | None) -> AuditLine | None:
    told = signature.get()
    if line is None or not told:
        return line
    return replace(line, detail=f"{line.detail} ({told})" if line.detail else told)
