"""Storages whose schedules are broken on purpose. See `sabotage`."""

from __future__ import annotations

from msgspec.structs import replace

from ..core.audit import AuditLine
from ..core.firing import Fire, Fired
from ..core.schedule import Schedule
from ..ports import Wake
from .sabotage import Sabotaged


class SaveIgnoresTheVersion(Sabotaged):
    caught_by = "test_only_the_expected_version_is_overwritten"

    async def save_schedule(
        self, schedule: Schedule, expected_version: int, *, cursor: float | None = None, line: AuditLine | None = None
    ) -> bool:
        row = self._schedules.get(schedule.name)
        return await super().save_schedule(schedule, row.version if row else 0, cursor=cursor, line=line)


class SaveIsNotRepeatable(Sabotaged):
    caught_by = "test_a_save_sent_again_answers_as_the_first_time"

    async def save_schedule(
        self, schedule: Schedule, expected_version: int, *, cursor: float | None = None, line: AuditLine | None = None
    ) -> bool:
        row = self._schedules.get(schedule.name)
        if (row.version if row else 0) != expected_version:
            return False
        return await super().save_schedule(schedule, expected_version, cursor=cursor, line=line)


class EditOverwritesTheProgress(Sabotaged):
    caught_by = "test_an_edit_leaves_the_progress_alone"

    async def save_schedule(
        self, schedule: Schedule, expected_version: int, *, cursor: float | None = None, line: AuditLine | None = None
    ) -> bool:
        saved = await super().save_schedule(schedule, expected_version, cursor=cursor, line=line)
        self._schedules[schedule.name] = schedule
        return saved


class RecordsAreNotLookedAt(Sabotaged):
    caught_by = "test_a_time_that_is_recorded_is_never_fired_again"

    async def fire(self, wish: Fire) -> Fired:
        self._fires.pop(wish.name, None)
        return await super().fire(wish)


class FireIgnoresTheCursor(Sabotaged):
    caught_by = "test_a_fire_sent_again_is_one_job"

    async def fire(self, wish: Fire) -> Fired:
        self._fires.pop(wish.name, None)
        row = self._schedules.get(wish.name)
        return await super().fire(wish if row is None else replace(wish, cursor=row.progress.cursor))


class FireIgnoresTheVersion(Sabotaged):
    caught_by = "test_a_fire_decided_from_an_older_version_is_stale"

    async def fire(self, wish: Fire) -> Fired:
        row = self._schedules.get(wish.name)
        return await super().fire(wish if row is None else replace(wish, version=row.version))


class FireIgnoresThePause(Sabotaged):
    caught_by = "test_pause_and_removal_are_checked_inside_the_fire"

    async def fire(self, wish: Fire) -> Fired:
        row = self._schedules.get(wish.name)
        if row is not None:
            self._schedules[wish.name] = replace(row, plan=replace(row.plan, paused=False))
        return await super().fire(wish)


class FireBringsBackTheRemoved(Sabotaged):
    caught_by = "test_pause_and_removal_are_checked_inside_the_fire"

    async def fire(self, wish: Fire) -> Fired:
        row = self._schedules.get(wish.name)
        if row is not None:
            self._schedules[wish.name] = replace(row, removed_at=None)
        return await super().fire(wish)


class OverlapIsNotLookedAt(Sabotaged):
    caught_by = "test_overlap_is_skipped_while_a_job_of_it_lives"

    def _still_live(self, row: Schedule | None) -> set[str]:
        return set()


class FireByHandMovesTheCursor(Sabotaged):
    caught_by = "test_a_fire_by_hand_ignores_pause_and_overlap"

    async def fire(self, wish: Fire) -> Fired:
        fired = await super().fire(wish)
        if wish.manual:
            row = self._schedules[wish.name]
            self._schedules[wish.name] = replace(row, progress=replace(row.progress, cursor=self._clock.now()))
        return fired


class FireWakesNobody(Sabotaged):
    caught_by = "test_a_fire_wakes_its_queue"

    def _tell(self, wake: Wake) -> None:
        if "mail" not in wake.queues:
            super()._tell(wake)


class FireIsNotRecorded(Sabotaged):
    caught_by = "test_a_fire_inserts_its_job_and_moves_the_cursor"

    async def fire(self, wish: Fire) -> Fired:
        fired = await super().fire(wish)
        self._fires.pop(wish.name, None)
        return fired
