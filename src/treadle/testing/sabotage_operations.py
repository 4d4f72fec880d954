"""Sabotages of what operators do to many jobs: operations, audit, retention. See `sabotage`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ..core.job import Change, State
from ..core.operation import Operation
from ..ports import Applied, Page, Pruned, Query
from .sabotage import Sabotaged


class AnybodyAdvances(Sabotaged):
    caught_by = "test_a_write_of_another_version_is_refused"

    async def advance(
        self, operation: Operation, changes: Sequence[Change], then: Callable[[Sequence[Applied]], Operation]
    ) -> Operation | None:
        now = self._operations[operation.id]
        return await super().advance(replace(operation, version=now.version), changes, then)


class ChunkWithoutItsCursor(Sabotaged):
    caught_by = "test_a_chunk_its_cursor_and_its_counts_are_one"

    async def advance(
        self, operation: Operation, changes: Sequence[Change], then: Callable[[Sequence[Applied]], Operation]
    ) -> Operation | None:
        await self.apply(changes)
        return replace(then([]), version=operation.version)


class NewOperationOverwrites(Sabotaged):
    caught_by = "test_an_operation_is_kept_as_it_was_saved"

    async def save_operation(self, operation: Operation, expected: int | None) -> Operation | None:
        if expected is None:
            self._operations.pop(operation.id, None)
            self._clock.advance(1)  # type: ignore[attr-defined]
        return await super().save_operation(operation, expected)


class CutOffIsForgotten(Sabotaged):
    caught_by = "test_younger_jobs_are_left_alone"

    async def save_operation(self, operation: Operation, expected: int | None) -> Operation | None:
        saved = await super().save_operation(operation, expected)
        if saved is None:
            return None
        self._operations[saved.id] = found = replace(saved, cutoff=float("inf"))
        return found


class AuditForgetsItself(Sabotaged):
    caught_by = "test_an_operation_is_told_at_its_beginning_and_at_its_end"

    def _write_operation(self, new: Operation, before: Operation | None) -> Operation:
        lines = dict(self._audit)
        row = super()._write_operation(new, before)
        self._audit = lines if before is not None else self._audit
        return row


class PrunesTheYoung(Sabotaged):
    caught_by = "test_ended_jobs_go_at_their_age_and_not_before"

    async def prune(
        self, state: State, *, queue: str | None = None, mark: str | None = None, limit: int = 1000
    ) -> Pruned:
        gone = [id for id, row in self._rows.items() if row.job.state is state]
        for id in gone:
            del self._rows[id]
        return Pruned(len(gone))


class PrunesOtherQueues(Sabotaged):
    caught_by = "test_one_queue_can_be_pruned_alone"

    async def prune(
        self, state: State, *, queue: str | None = None, mark: str | None = None, limit: int = 1000
    ) -> Pruned:
        return await super().prune(state, mark=mark, limit=limit)


class PrunesKeysThatAreHeld(Sabotaged):
    caught_by = "test_a_success_that_still_holds_its_key_stays"

    def _still_holds(self, id: str, now: float) -> bool:
        return False


class SweepsWhatIsUnderWay(Sabotaged):
    caught_by = "test_records_are_swept_after_their_time"

    async def sweep(self) -> dict[str, int]:
        swept = dict(await super().sweep())
        if swept["operations"]:
            self._operations.clear()
        return swept


class CauseOfTheLiving(Sabotaged):
    caught_by = "test_only_what_has_failed_has_a_cause"

    async def find(self, query: Query) -> Page:
        terms = tuple(term for term in query.filter.terms if term.key != "cause")
        return await super().find(replace(query, filter=type(query.filter)(terms)))
