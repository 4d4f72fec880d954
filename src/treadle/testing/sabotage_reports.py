"""Sabotages of what runs report: see `sabotage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..core.job import State
from ..core.logline import LogLine
from ..core.progress import Report, Reported
from .sabotage import Sabotaged

if TYPE_CHECKING:
    from ..storages.memory.storage import _Row  # pyright: ignore[reportPrivateUsage]


class ReportsAreNotFenced(Sabotaged):
    caught_by = "test_a_run_that_lost_its_claim_is_not_heard"

    def _is_taken(self, row: _Row, report: Report) -> bool:
        return True


class ReportsGoByTheTokenAlone(Sabotaged):
    caught_by = "test_a_run_that_was_rescued_from_is_not_heard"

    def _is_taken(self, row: _Row, report: Report) -> bool:
        return row.job.token == report.token


class CheckpointsComeAfterTheFinish(Sabotaged):
    caught_by = "test_a_checkpoint_needs_a_claim_that_holds"

    def _is_taken(self, row: _Row, report: Report) -> bool:
        return super()._is_taken(row, replace(report, checkpoint=None))


class ProgressNeedsARunningJob(Sabotaged):
    caught_by = "test_progress_may_come_just_after_the_runs_own_finish"

    def _is_taken(self, row: _Row, report: Report) -> bool:
        return row.job.state is State.RUNNING and super()._is_taken(row, report)


class ProgressIsShownAfterASuccess(Sabotaged):
    caught_by = "test_after_a_success_there_is_nothing_to_show"

    async def progress(self, job_ids: Sequence[str]) -> Sequence[Reported]:
        return [self._said.progress[id] for id in job_ids if id in self._said.progress]


class RevivedJobsGoOnAfterASuccess(Sabotaged):
    caught_by = "test_a_job_that_is_revived_after_a_success_begins_with_nothing"

    def _forget_reports(self, job_id: str) -> None:
        pass


class WhatWasSaidOutlivesItsJob(Sabotaged):
    caught_by = "test_a_job_that_goes_takes_all_that_it_said_with_it"

    def _forget_said(self, job_id: str) -> None:
        pass

    def _has(self, said: object, id: str) -> bool:
        return id in said  # type: ignore[operator]


class LogsAreEndless(Sabotaged):
    caught_by = "test_of_an_attempt_the_last_thousand_lines_are_kept"

    def _trim(self, id: str, attempt: int) -> None:
        pass


class LogLinesAreNotRepeatable(Sabotaged):
    caught_by = "test_a_log_line_that_is_sent_again_is_there_once"

    async def record_logs(self, lines: Sequence[LogLine]) -> None:
        known = sum(map(len, self._said.logs.values()))
        await super().record_logs([LogLine(each.job_id, each.n + known, *_rest(each)) for each in lines])


def _rest(line: LogLine) -> tuple[int, str, str]:
    return line.attempt, line.level, line.text
