"""Sabotages of what operators do to many jobs: operations, audit, retention. See `sabotage`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from ..core.audit import AuditLine
from ..core.job import Change, QueueChange, State
from ..core.limit import OF_A_QUEUE, Bucket
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
    caught_by = "test_only_what_failed_or_waits_for_a_retry_has_a_cause"

    async def find(self, query: Query) -> Page:
        terms = tuple(term for term in query.filter.terms if term.key != "cause")
        return await super().find(replace(query, filter=type(query.filter)(terms)))


class EditWithoutItsLine(Sabotaged):
    caught_by = "test_an_edit_of_a_queue_and_its_line_are_one"

    def _edit(self, change: QueueChange, now: float) -> Applied:
        return super()._edit(replace(change, audit=None), now)


class ActWithoutItsLine(Sabotaged):
    caught_by = "test_an_act_upon_a_job_and_its_lines_are_one"

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        return await super().apply([replace(each, line=None) if isinstance(each, Change) else each for each in changes])


class ActWithoutItsEvent(Sabotaged):
    caught_by = "test_an_act_upon_a_job_and_its_lines_are_one"

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        bare = [replace(each, event=None) if isinstance(each, Change) else each for each in changes]
        return await super().apply(bare)


class LineOfAnActThatWasRefused(Sabotaged):
    caught_by = "test_acts_upon_limits_and_locks_bring_their_lines"

    async def save_limit(
        self, scope: str, capacity: int, refill: float, expected: int | None = None, *, line: AuditLine | None = None
    ) -> Bucket | None:
        saved = await super().save_limit(scope, capacity, refill, expected)
        await self.note([] if line is None else [line])
        return saved


class BucketIsForgottenBeforeItIsFull(Sabotaged):
    caught_by = "test_the_bucket_of_a_queue_without_a_rate_is_swept_once_it_is_full"

    async def sweep(self) -> Mapping[str, int]:
        rates = {name: queue.rate for name, queue in self._queues.items()}
        idle = [scope for scope in self._buckets if rates.get(scope.removeprefix(OF_A_QUEUE), 1.0) is None]
        for scope in idle:
            del self._buckets[scope]
        return {**await super().sweep(), "limits": len(idle)}


class KeysAreKeptForEver(Sabotaged):
    caught_by = "test_keys_that_are_free_again_are_swept"

    async def sweep(self) -> Mapping[str, int]:
        kept = dict(self._held)
        swept = await super().sweep()
        self._held.update(kept)
        return swept
