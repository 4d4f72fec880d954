"""Operator: works off the operations that somebody has asked for, a chunk at a time.

The leader's duty, and the command line's where no pod lives: both call `work`. Safe to run twice at once: every chunk
is written under the version of the row that was read, and the loser of the race looks again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, UnsetType

from ...core import lifecycle, operation
from ...core.errors import FilterError
from ...core.event import of_change
from ...core.job import Change, Job
from ...core.operation import CHUNK, UNDER_WAY, Operation
from ...ports import Applied, Query, Storage

log = logging.getLogger("treadle.operator")

# Whoever attends to an operation writes a chunk far more often than this; if not, they are gone.
ABANDONED_AFTER: Final = 10.0
LONGEST_PASS: Final = 5.0


async def work(storage: Storage, found: Operation, chunk: int = CHUNK) -> Operation | None:
    """One chunk, or what else it needs. The row as it is now; None if somebody else was faster: look again."""
    if found.state == "stopping":
        return await storage.save_operation(operation.halt(found), found.version)
    try:
        page = await storage.find(Query(filter=operation.which(found), limit=chunk, cursor=found.cursor))
    except (FilterError, ValueError) as error:  # written by another version, which knows other keys
        return await storage.save_operation(operation.halt(found, str(error)), found.version)
    todo = operation.decide(found, page.jobs, page.next or page.resume)
    told: list[Applied] = []

    def then(answers: Sequence[Applied]) -> Operation:
        told[:] = answers
        return operation.after(found, todo, answers)

    done = await storage.advance(found, todo.changes, then)
    if done is not None:
        answered = list(zip(todo.changes, told, strict=True))
        accepted = [change for change, answer in answered if answer.accepted]
        accepted += await _obey(storage, [(change, answer.kept) for change, answer in answered])
        await _record(storage, found, page.jobs, accepted)
    return done


async def _obey(storage: Storage, refused: Sequence[tuple[Change, str | UnsetType | None]]) -> list[Change]:
    """What was refused because somebody has asked for the same since the page was read: written all the same, with that
    request in its place. The operation counts it as too late."""
    changes = [lifecycle.take_over(change, kept) for change, kept in refused if kept is not UNSET]
    answers = await storage.apply(changes) if changes else ()
    return [change for change, answer in zip(changes, answers, strict=True) if answer.accepted]


async def _record(storage: Storage, found: Operation, jobs: Sequence[Job], changes: Sequence[Change]) -> None:
    """Who did it, in each job's timeline. If that is lost, nothing else is: the audit has the operation."""
    known = {job.id: job for job in jobs}
    by, detail = found.by or "operation", f"operation {found.id}"
    lines = [of_change(known[each.id], each, id=found.id, by=by, detail=detail) for each in changes if not each.remove]
    try:
        await storage.record([line for line in lines if line is not None])
    except Exception as error:
        log.info("the timelines lack what operation %s did: %s", found.id, error)


class Operator:
    name = "operator"
    jitter = 0.2

    def __init__(self, storage: Storage, *, every: float = 1.0, chunk: int = CHUNK) -> None:
        self.every = every
        self.chunks = 0
        self.changed = 0
        self._storage = storage
        self._chunk = chunk
        self._seen: dict[str, tuple[int, float]] = {}  # id → the version that was seen first at this instant

    async def run_once(self) -> None:
        until = time.monotonic() + LONGEST_PASS
        found = [each for each in await self._storage.operations() if each.state in UNDER_WAY]
        self._note(found)
        trouble: list[Exception] = []
        for each in found:
            current: Operation | None = each
            try:
                while current is not None and self._is_ours(current) and time.monotonic() < until:
                    current = await self._advance(current)
            except Exception as error:
                # It is tried again with the next pass, and the others need not wait for that. With the second it is
                # the storage.
                trouble.append(error)
                if len(trouble) > 1:
                    break
        if trouble:
            raise trouble[0]

    async def _advance(self, found: Operation) -> Operation | None:
        done = await work(self._storage, found, self._chunk)
        if done is None:
            return await self._storage.operation(found.id)
        self.chunks += 1
        self.changed += done.changed - found.changed
        if done.state not in UNDER_WAY:
            log.info("operation %s (%s) %s: %d changed", done.id, done.act, done.state, done.changed)
        return done

    def _is_ours(self, found: Operation) -> bool:
        if found.state not in UNDER_WAY:
            return False
        if not found.attended:
            return True
        version, since = self._seen.get(found.id, (-1, 0.0))
        return version >= 0 and time.monotonic() - since >= ABANDONED_AFTER

    def _note(self, found: list[Operation]) -> None:
        """Remember since when each has rested at its version: what somebody attends to is taken up only then."""
        now = time.monotonic()
        before = self._seen
        self._seen = {}
        for each in found:
            version, since = before.get(each.id, (-1, now))
            self._seen[each.id] = (each.version, since if version == each.version else now)
