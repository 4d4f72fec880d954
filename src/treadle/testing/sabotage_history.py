"""Sabotages of history: see `sabotage`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..core.event import Event
from ..core.reading import Reading
from ..core.rollup import Rollup, What
from .sabotage import Sabotaged


class RollUpAddsUp(Sabotaged):
    caught_by = "test_a_rollup_takes_the_place_of_the_one_before"

    async def roll_up(self, rows: Sequence[Rollup | Reading]) -> None:
        for row in rows:
            if isinstance(row, Rollup) and (before := self._history.rollups.get(row.key)) is not None:
                before.absorb(row)
            else:
                await super().roll_up([row])


class RollUpKeepsTheCallersRow(Sabotaged):
    caught_by = "test_a_row_that_goes_on_counting_changes_nothing_here"

    async def roll_up(self, rows: Sequence[Rollup | Reading]) -> None:
        await super().roll_up(rows)
        self._history.rollups.update({row.key: row for row in rows if isinstance(row, Rollup)})


class RollUpForgetsThePod(Sabotaged):
    caught_by = "test_pods_queues_tasks_minutes_and_resolutions_are_kept_apart"

    async def roll_up(self, rows: Sequence[Rollup | Reading]) -> None:
        await super().roll_up([replace(row, pod="") for row in rows])


class RecordIsNotRepeatable(Sabotaged):
    caught_by = "test_a_line_that_is_sent_again_is_there_once"

    async def record(self, events: Sequence[Event]) -> None:
        known = sum(map(len, self._history.events.values()))
        await super().record([replace(event, id=f"{event.id}-{known}") for event in events])


class LinesOutliveTheirJob(Sabotaged):
    caught_by = "test_an_ended_job_keeps_its_lines_and_takes_them_with_it"

    def _forget_events(self, job_id: str) -> None:
        pass


class LinesOfNobodyAreKept(Sabotaged):
    caught_by = "test_lines_about_a_job_that_is_not_there_are_dropped"

    async def record(self, events: Sequence[Event]) -> None:
        for event in events:
            self._history.events.setdefault(event.job, {})[event.id] = event


class ForgettingHasNoLimit(Sabotaged):
    caught_by = "test_what_is_too_old_goes_the_oldest_first_and_a_few_at_a_time"

    async def forget_history(self, what: What, age: float, limit: int = 1000) -> int:
        return await super().forget_history(what, age, 1_000_000)


class ForgettingTakesAllKinds(Sabotaged):
    caught_by = "test_each_kind_goes_by_itself"

    async def forget_history(self, what: What, age: float, limit: int = 1000) -> int:
        await super().forget_history("days", age, limit)
        return await super().forget_history(what, age, limit)
