"""Storages that do not keep the last request as they should, one safeguard less each. See `sabotage`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..core import keep_last
from ..core.job import Change, Job, NewJob, State, UniqueClaim
from ..ports import Applied, Inserted
from ..storages.memory.storage import _Row  # pyright: ignore[reportPrivateUsage] - it knows its victim
from .sabotage import Sabotaged


class FinishPassesOverTheKept(Sabotaged):
    caught_by = "test_a_change_that_ends_the_run_is_refused_and_says_what_is_kept"

    def _apply(self, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)
        if row is not None and change.takes is None and change.to is not None:
            row.job = replace(row.job, kept=None)
        return super()._apply(change, now)


class OnlyASuccessMindsTheKept(Sabotaged):
    caught_by = "test_a_change_that_ends_the_run_is_refused_and_says_what_is_kept"

    def _apply(self, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)
        if row is not None and change.takes is None and change.to in (State.SCHEDULED, State.READY):
            row.job = replace(row.job, kept=None)
        return super()._apply(change, now)


class OlderContentIsTaken(Sabotaged):
    caught_by = "test_a_change_that_takes_what_is_no_longer_kept_is_refused"

    def _apply(self, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)
        if row is not None and change.takes is not None:
            row.job = replace(row.job, kept=change.takes)
        return super()._apply(change, now)


class ThePlaceIsNotEmptied(Sabotaged):
    caught_by = "test_cancelling_it_empties_the_place"

    def _changed(self, job: Job, change: Change, now: float) -> Job:
        return replace(super()._changed(job, change, now), kept=job.kept)


class TheFirstRequestIsKept(Sabotaged):
    caught_by = "test_later_requests_overwrite_the_content_and_keep_the_id"

    def _settle(self, holder: str, new: NewJob, rule: UniqueClaim, now: float) -> Inserted:
        kept = self._rows[holder].job.kept
        answer = super()._settle(holder, new, rule, now)
        if kept is not None:
            self._rows[holder].job = replace(self._rows[holder].job, kept=kept)
        return answer


class EveryRequestHasItsOwnId(Sabotaged):
    caught_by = "test_requests_at_once_agree_on_one_place"

    def _settle(self, holder: str, new: NewJob, rule: UniqueClaim, now: float) -> Inserted:
        self._rows[holder].job = replace(self._rows[holder].job, kept=None)
        return super()._settle(holder, new, rule, now)


class KeptTakesANewKey(Sabotaged):
    caught_by = "test_it_keeps_the_key_of_the_window_that_it_was_asked_in"

    def _settle(self, holder: str, new: NewJob, rule: UniqueClaim, now: float) -> Inserted:
        answer = super()._settle(holder, new, rule, now)
        job = self._rows[holder].job
        if job.kept is not None:
            self._rows[holder].job = replace(job, kept=keep_last.keep(new, f"{rule.key}@later#", now, job.kept))
        return answer


class KeptIsNotFound(Sabotaged):
    caught_by = "test_it_is_found_through_its_holder"

    async def get(self, ids: Sequence[str]) -> Sequence[Job]:
        return [job for job in await super().get(ids) if job.behind is None]


class TheCapIsIgnored(Sabotaged):
    caught_by = "test_never_beyond_the_cap"

    def _insert(self, new: NewJob, now: float) -> Inserted:
        rule = new.unique
        return super()._insert(new if rule is None else replace(new, unique=replace(rule, cap=None)), now)


class TheCapBeginsAnew(Sabotaged):
    caught_by = "test_what_is_kept_is_put_off_too_and_its_cap_counts_from_its_first"

    def _write(self, row: _Row, job: Job, change: Change, now: float) -> Applied:
        new = tuple(replace(each, asked_at=None) for each in change.follow_ups)
        return super()._write(row, job, replace(change, follow_ups=new), now)
