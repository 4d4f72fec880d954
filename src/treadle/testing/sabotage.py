"""Storages that are broken on purpose, one safeguard each: the conformance suite must catch every one of them.

A safeguard whose removal nobody notices is not tested. Each sabotage is the memory storage without one safeguard; its
first line names the safeguard, and `caught_by` a case of the suite that fails without it. Many need no more than
another Change: those are the functions at the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from msgspec.structs import replace

from ..core import limit as limiting
from ..core.audit import AuditLine
from ..core.balance import Share
from ..core.job import CLAIMABLE, TERMINAL, Change, Job, NewJob, QueueChange, State, UniqueClaim
from ..core.limit import Bucket, Take, Taken
from ..core.lock import Lock
from ..core.pod import PodCard, Wish
from ..core.queue import Queue
from ..core.record import Record
from ..ports import Abandoned, Applied, Beaten, Claimed, Clock, Dumped, Inserted, Loaded, RunReport, Wake, Want
from ..storages.memory.storage import MemoryStorage, _Row  # pyright: ignore[reportPrivateUsage] - it knows its victim


class Sabotaged(MemoryStorage):
    caught_by: ClassVar[str]


class InsertIsNotRepeatable(Sabotaged):
    caught_by = "test_an_insert_sent_again_does_not_bring_back_what_has_ended"

    def _insert(self, new: NewJob, now: float) -> Inserted:
        self._rows.pop(new.id, None)
        return super()._insert(new, now)


class RepeatedInsertIsADuplicate(Sabotaged):
    caught_by = "test_an_insert_sent_again_is_one_job"

    def _insert(self, new: NewJob, now: float) -> Inserted:
        return Inserted(new.id, "duplicate") if new.id in self._rows else super()._insert(new, now)


class UniqueIsNotChecked(Sabotaged):
    caught_by = "test_64_inserters_of_one_key_give_one_job_and_all_name_it"

    def _holder(self, key: str, now: float) -> str | None:
        return None


class PeriodIsIgnored(Sabotaged):
    caught_by = "test_a_period_holds_the_key_inside_its_window_only"

    def _insert(self, new: NewJob, now: float) -> Inserted:
        rule = new.unique
        return super()._insert(new if rule is None else replace(new, unique=replace(rule, period=None)), now)


class SuccessHoldsNothing(Sabotaged):
    caught_by = "test_a_success_holds_its_key_until_the_period_ends_if_asked"

    def _holder(self, key: str, now: float) -> str | None:
        return self._keys.get(key)


class ReplaceTouchesARun(Sabotaged):
    caught_by = "test_a_running_holder_is_not_replaced"

    def _settle(self, holder: str, new: NewJob, rule: UniqueClaim, now: float) -> Inserted:
        row = self._rows[holder]
        row.job = replace(row.job, args=new.args)
        return super()._settle(holder, new, rule, now)


class KeyIsNotFreedAtTheEnd(Sabotaged):
    caught_by = "test_every_end_frees_the_key"

    def _write(self, row: _Row, job: Job, change: Change, now: float) -> Applied:
        answer = super()._write(row, job, change, now)
        if job.unique_key is not None:
            self._keys[job.unique_key] = job.id
        return answer


class KeyIsFreedWhileScheduled(Sabotaged):
    caught_by = "test_a_job_holds_its_key_through_every_return"

    def _write(self, row: _Row, job: Job, change: Change, now: float) -> Applied:
        answer = super()._write(row, job, change, now)
        if change.to in CLAIMABLE:
            self._keys.pop(job.unique_key or "", None)
        return answer


class ReviveTakesTheKeyAway(Sabotaged):
    caught_by = "test_a_revive_is_refused_while_a_live_job_holds_the_key"

    def _write(self, row: _Row, job: Job, change: Change, now: float) -> Applied:
        self._keys.pop(job.unique_key or "", None)
        return super()._write(row, job, change, now)


class ClaimDoesNotCharge(Sabotaged):
    caught_by = "test_a_claim_charges_an_attempt"

    def _charge(self, row: _Row, pod: str, token: str, queue: Queue, now: float) -> Job:
        row.job = replace(row.job, attempt=row.job.attempt - 1)
        return super()._charge(row, pod, token, queue, now)


class ClaimSetsNoDeadline(Sabotaged):
    caught_by = "test_the_deadline_is_the_timeout_from_now"

    def _charge(self, row: _Row, pod: str, token: str, queue: Queue, now: float) -> Job:
        super()._charge(row, pod, token, queue, now)
        row.job = replace(row.job, deadline=None)
        return row.job


class ClaimDoesNotCheckTheState(Sabotaged):
    caught_by = "test_20_claimers_and_1000_jobs_give_1000_distinct_claims"

    def _due_rows(self, queue: str, now: float) -> list[_Row]:
        shared = [row for row in self._rows.values() if row.job.state is State.RUNNING and row.job.attempt == 1]
        return super()._due_rows(queue, now) + shared


class ClaimIgnoresDueTimes(Sabotaged):
    caught_by = "test_nothing_is_claimed_one_tick_before_it_is_due"

    def _due_rows(self, queue: str, now: float) -> list[_Row]:
        return super()._due_rows(queue, math.inf)


class ClaimIgnoresGates(Sabotaged):
    """Both gates of a queue; each subclass opens one."""

    caught_by = "test_a_paused_queue_gives_nothing"

    def opened(self, queue: Queue) -> Queue:
        return replace(queue, paused=False)

    async def claim(self, pod: str, token: str, wants: Sequence[Want]) -> Claimed:
        kept = dict(self._queues)
        self._queues.update({name: self.opened(queue) for name, queue in kept.items()})
        try:
            return await super().claim(pod, token, wants)
        finally:
            self._queues.update(kept)


class ClaimIgnoresCoolDowns(ClaimIgnoresGates):
    caught_by = "test_a_cooling_queue_gives_nothing_until_it_has_cooled"

    def opened(self, queue: Queue) -> Queue:
        return replace(queue, cool_until=None)


class ClaimIgnoresPriority(Sabotaged):
    caught_by = "test_a_higher_priority_goes_first"

    def _take(self, want: Want, queue: Queue, now: float) -> list[_Row]:
        return sorted(super()._take(replace(want, limit=10**6), queue, now), key=lambda row: row.seq)[: want.limit]


class ClaimTakesTheNewestFirst(Sabotaged):
    caught_by = "test_of_equal_due_times_the_earlier_inserted_goes_first"

    def _take(self, want: Want, queue: Queue, now: float) -> list[_Row]:
        return super()._take(replace(want, limit=10**6), queue, now)[::-1][: want.limit]


class ClaimIgnoresLanes(Sabotaged):
    caught_by = "test_a_task_that_no_lane_names_is_passed_over_and_uncharged"

    def _take(self, want: Want, queue: Queue, now: float) -> list[_Row]:
        return sorted(self._due_rows(want.queue, now), key=lambda row: -row.job.priority)[: want.limit]


class LanesHaveNoBound(Sabotaged):
    caught_by = "test_a_lane_takes_no_more_than_its_own_places"

    def _take(self, want: Want, queue: Queue, now: float) -> list[_Row]:
        lanes = tuple(replace(lane, limit=want.limit) for lane in want.lanes)
        return super()._take(replace(want, lanes=lanes), queue, now)


class LapsedPodMayClaim(Sabotaged):
    caught_by = "test_a_lapsed_pod_claims_nothing_until_it_beats"

    async def claim(self, pod: str, token: str, wants: Sequence[Want]) -> Claimed:
        if pod in self._pods:
            self._pods[pod].lease_until = math.inf
        return await super().claim(pod, token, wants)


class RecoverForgets(Sabotaged):
    caught_by = "test_a_claim_is_recovered_by_its_token"

    async def recover(self, pod: str, token: str) -> Sequence[Job]:
        return ()


class RepeatedFinishIsStale(Sabotaged):
    caught_by = "test_a_finish_sent_again_stays_accepted"

    def _apply(self, change: Change, now: float) -> Applied:
        answer = super()._apply(change, now)
        return Applied(False, state=answer.state) if answer.repeated else answer


class AnybodysTokenIsARepeat(Sabotaged):
    caught_by = "test_a_finish_that_came_first_wins_over_the_rescue"

    def _apply(self, change: Change, now: float) -> Applied:
        answer = super()._apply(change, now)
        row = self._rows.get(change.id)
        repeat = row is not None and change.token is not None and row.finished_token == change.token
        return Applied(True, repeated=True, state=answer.state) if repeat and not answer.accepted else answer


class RepeatedFinishFollowsUpAgain(Sabotaged):
    caught_by = "test_a_finish_sent_again_inserts_its_follow_ups_once"

    def _apply(self, change: Change, now: float) -> Applied:
        answer = super()._apply(change, now)
        if answer.repeated:
            for new in change.follow_ups:
                self._insert(replace(new, id=new.id[:-1] + "x"), now)
        return answer


class StaleFinishFollowsUp(Sabotaged):
    caught_by = "test_a_stale_success_inserts_no_follow_ups"

    def _apply(self, change: Change, now: float) -> Applied:
        answer = super()._apply(change, now)
        for new in change.follow_ups:
            self._insert(new, now)
        return answer


class OneBadChangeStopsTheBatch(Sabotaged):
    caught_by = "test_a_stale_token_spares_its_neighbours"

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        answers: list[Applied] = []
        for change in changes:
            stopped = any(not answer.accepted for answer in answers)
            answers += [Applied(False)] if stopped else await super().apply([change])
        return answers


class CancelFlagSurvives(Sabotaged):
    caught_by = "test_the_flag_does_not_outlive_the_run"

    def _changed(self, job: Job, change: Change, now: float) -> Job:
        changed = super()._changed(job, change, now)
        return replace(changed, cancel_wanted=changed.cancel_wanted or job.cancel_wanted)


class ErrorsAreKeptWithoutBound(Sabotaged):
    caught_by = "test_the_last_errors_are_kept_and_all_are_counted"

    def _changed(self, job: Job, change: Change, now: float) -> Job:
        changed = super()._changed(job, change, now)
        return changed if change.error is None else replace(changed, errors=(*job.errors, changed.errors[-1]))


class CoolDownRisesWithEveryThrottle(Sabotaged):
    caught_by = "test_many_throttles_in_one_window_raise_the_wait_once"

    def _cool(self, name: str, hint: float | None, now: float) -> float:
        exponent = self._queues[name].cool_exponent
        until = super()._cool(name, hint, now)
        self._queues[name] = replace(self._queues[name], cool_exponent=exponent + 1)
        return until


class ThrottlesHintIsIgnored(Sabotaged):
    caught_by = "test_a_larger_hint_lengthens_the_window"

    def _cool(self, name: str, hint: float | None, now: float) -> float:
        return super()._cool(name, None, now)


class EditsOverwriteEachOther(Sabotaged):
    caught_by = "test_an_edit_of_an_old_version_is_refused"

    def _edit(self, change: QueueChange, now: float) -> Applied:
        return super()._edit(replace(change, version=None), now)


class BeatRevivesALostPod(Sabotaged):
    caught_by = "test_a_lost_pod_hears_it_for_ever"

    async def beat(
        self, pod: str, lease: float, runs: Sequence[RunReport], *, renew: bool = True, **said: Any
    ) -> Beaten:
        if pod in self._pods:
            self._pods[pod].lost = False
        return await super().beat(pod, lease, runs, renew=renew, **said)


class BeatHidesCancels(Sabotaged):
    caught_by = "test_a_beat_hears_of_a_wanted_cancel"

    async def beat(
        self, pod: str, lease: float, runs: Sequence[RunReport], *, renew: bool = True, **said: Any
    ) -> Beaten:
        answer = await super().beat(pod, lease, runs, renew=renew, **said)
        return replace(answer, held=tuple(replace(held, cancel_wanted=False) for held in answer.held))


class QuietPodsCountAsServing(Sabotaged):
    caught_by = "test_those_that_claim_nothing_are_left_out"

    def _serving(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in self._pods.values():
            for name in row.card.queues:
                counts[name] = counts.get(name, 0) + 1
        return counts


class TheLostTakeOrders(Sabotaged):
    caught_by = "test_who_is_not_there_takes_no_orders"

    async def order_pod(self, pod: str, wish: Wish | None, *, stacks: bool = False, by: str | None = None) -> bool:
        if pod in self._pods and wish is not None:
            self._pods[pod].wish = wish
        return pod in self._pods


class OrdersWakeNobody(Sabotaged):
    caught_by = "test_an_order_wakes"

    def _tell(self, wake: Wake) -> None:
        super()._tell(replace(wake, settings=False))


class WhoComesWakesNobody(Sabotaged):
    caught_by = "test_who_comes_and_who_leaves_wakes_the_others"

    is_told = True

    async def register(self, card: PodCard) -> None:
        self.is_told = False
        await super().register(card)
        self.is_told = True

    def _tell(self, wake: Wake) -> None:
        if self.is_told:
            super()._tell(wake)


class WhoLeavesWakesNobody(WhoComesWakesNobody):
    async def register(self, card: PodCard) -> None:
        await MemoryStorage.register(self, card)

    async def sign_off(self, pod: str) -> None:
        self.is_told = False
        await super().sign_off(pod)
        self.is_told = True


class StrangersGetShares(Sabotaged):
    caught_by = "test_a_pod_that_is_not_there_gets_none"

    async def save_shares(self, shares: Sequence[Share]) -> None:
        self._kept = {**getattr(self, "_kept", {}), **{(each.pod, each.queue): each.share for each in shares}}
        await super().save_shares(shares)

    async def register(self, card: PodCard) -> None:
        await super().register(card)
        kept: dict[tuple[str, str], int] = getattr(self, "_kept", {})
        self._pods[card.id].shares = {queue: share for (pod, queue), share in kept.items() if pod == card.id}


class ExpiryAloneTakesAway(Sabotaged):
    caught_by = "test_looking_for_the_abandoned_changes_nothing"

    async def abandoned(self, limit: int, overdue: float) -> Sequence[Abandoned]:
        found = await super().abandoned(limit, overdue)
        for each in found:
            self._pods[each.job.pod or ""].lost = True
        return found


class SignedOffPodKeepsItsJobs(Sabotaged):
    caught_by = "test_jobs_of_a_pod_that_signed_off_are_abandoned_at_once"

    async def sign_off(self, pod: str) -> None:
        await self.step_down(pod)


class TermIsNotRaised(Sabotaged):
    caught_by = "test_the_term_rises_at_every_change_of_holder"

    async def lead(self, pod: str, ttl: float) -> int | None:
        return None if await super().lead(pod, ttl) is None else 1


class EverybodyLeads(Sabotaged):
    caught_by = "test_of_10_pods_that_want_to_lead_exactly_one_does"

    def _leads(self, pod: str) -> bool:
        return False


class RescueDoesNotCheckTheLease(Sabotaged):
    caught_by = "test_a_rescue_is_refused_while_the_lease_lives"

    def _apply(self, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)
        if change.if_lapsed and row is not None and row.job.pod in self._pods:
            self._pods[row.job.pod].lost = True
        return super()._apply(change, now)


class RescueDeclaresNobodyLost(Sabotaged):
    caught_by = "test_a_rescue_that_came_first_wins_over_the_beat"

    def _write(self, row: _Row, job: Job, change: Change, now: float) -> Applied:
        return super()._write(row, job, replace(change, if_lapsed=False), now)


class ListenersCannotStop(Sabotaged):
    caught_by = "test_who_stopped_listening_hears_nothing"

    def listen(self, on_wake: Callable[[Wake], None]) -> Callable[[], None]:
        super().listen(on_wake)
        return lambda: None


class LoadOverwrites(Sabotaged):
    caught_by = "test_a_known_id_is_compared_and_left_alone"

    def _load_job(self, record: Record) -> Loaded:
        self._rows.pop(record["id"], None)
        return super()._load_job(record)


class LoadForgetsThePlace(Sabotaged):
    caught_by = "test_the_order_of_insertion_is_kept"

    def _load_job(self, record: Record) -> Loaded:
        return super()._load_job({**record, "seq": None})


class LoadTakesAKeyAway(Sabotaged):
    caught_by = "test_a_live_key_that_is_held_refuses_its_job_alone"

    def _load_job(self, record: Record) -> Loaded:
        self._keys.pop(record.get("unique_key") or "", None)
        return super()._load_job(record)


class LoadOverwritesSettings(Sabotaged):
    caught_by = "test_a_queue_that_nobody_has_set_is_overwritten_and_any_other_is_not"

    def _load_queue(self, record: Record) -> Loaded:
        self._queues.pop(record["name"], None)
        return super()._load_queue(record)


class DumpLosesTheLastPage(Sabotaged):
    caught_by = "test_every_job_is_dumped_once"

    async def dump(self, kind: str, cursor: str | None = None, limit: int = 500) -> Dumped:
        return Dumped((await super().dump(kind, cursor, limit)).records)


class OddClock:
    """A clock of which one hand is wrong."""

    def __init__(self, clock: Clock, *, steady: bool = True, boot: bool = True) -> None:
        self.now = clock.now
        self.steady = clock.steady if steady else clock.now
        self.boot = clock.boot if boot else lambda: "boot"


class LeasesLiveByTheWallClock(Sabotaged):
    caught_by = "test_a_wall_clock_that_jumps_ahead_ends_no_lease"

    def __init__(self, clock: Clock) -> None:
        super().__init__(OddClock(clock, steady=False))


class LeasesOutliveTheBoot(Sabotaged):
    caught_by = "test_another_boot_ends_every_lease"

    def __init__(self, clock: Clock) -> None:
        super().__init__(OddClock(clock, boot=False))


def _sabotaged(name: str, caught_by: str, rewrite: Callable[[Change, Job], Change]) -> type[Sabotaged]:
    def _apply(self: Sabotaged, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)  # pyright: ignore[reportPrivateUsage]
        return MemoryStorage._apply(self, change if row is None else rewrite(change, row.job), now)  # pyright: ignore[reportPrivateUsage]

    return type(name, (Sabotaged,), {"_apply": _apply, "caught_by": caught_by})


def _without_token(*reasons: str) -> Callable[[Change, Job], Change]:
    return lambda change, job: replace(change, token=job.token) if change.why in reasons else change


_BY_CHANGE: Final[tuple[tuple[str, str, Callable[[Change, Job], Change]], ...]] = (
    ("SuccessWithoutToken", "test_a_stale_success_changes_nothing", _without_token("succeeded")),
    ("RetryWithoutToken", "test_a_stale_retry_changes_nothing", _without_token("retried")),
    ("FailureWithoutToken", "test_a_stale_failure_changes_nothing", _without_token("failed")),
    ("SnoozeWithoutToken", "test_a_stale_snooze_changes_nothing", _without_token("snoozed")),
    ("ThrottleWithoutToken", "test_a_stale_throttle_changes_nothing_and_cools_nothing", _without_token("throttled")),
    ("ReleaseWithoutToken", "test_a_stale_release_changes_nothing", _without_token("released")),
    ("StopWithoutToken", "test_a_stale_stop_changes_nothing", _without_token("cancelled")),
    ("CancelWithoutToken", "test_a_stale_cancel_does_not_reach_the_next_claim", _without_token("cancel_asked")),
    ("ResolutionWithoutToken", "test_a_stale_resolution_changes_nothing", _without_token("resolved")),
    ("RescueWithoutToken", "test_a_stale_rescue_changes_nothing", _without_token("rescued")),
    (
        "StateIsNotChecked",
        "test_a_finish_between_rescue_and_next_claim_is_stale",
        lambda change, job: replace(change, expect=frozenset(State)),
    ),
    (
        "LiveJobsAreRemoved",
        "test_a_job_that_was_revived_meanwhile_is_not_removed",
        lambda change, job: replace(change, expect=frozenset(State)) if change.remove else change,
    ),
    (
        "CancelFlagIsIgnored",
        "test_anything_but_a_success_is_refused_while_a_cancel_is_wanted",
        lambda change, job: replace(change, unless_cancel_wanted=False),
    ),
    (
        "CancelFlagBeatsASuccess",
        "test_a_task_that_returned_has_succeeded_whatever_the_flag_says",
        lambda change, job: replace(change, unless_cancel_wanted=change.to in TERMINAL),
    ),
    (
        "CrashesAreNotCounted",
        "test_a_job_that_takes_three_pods_with_it_is_poison",
        lambda change, job: replace(change, crashes=None),
    ),
    (
        "ReleaseIsCharged",
        "test_a_released_job_is_ready_at_once_and_not_charged",
        lambda change, job: replace(change, attempt=None),
    ),
    (
        "OwnerOfAnExpiredRunRepeats",
        "test_the_owner_of_an_expired_run_comes_too_late",
        lambda change, job: replace(change, foreign=False),
    ),
    (
        "FollowUpsAreForgotten",
        "test_follow_ups_are_inserted_with_the_finish",
        lambda change, job: replace(change, follow_ups=()),
    ),
)


class TokensAreNotTaken(Sabotaged):
    caught_by = "test_a_take_gives_what_is_there_and_no_more"

    def _take_tokens(self, wish: Take, now: float) -> Taken:
        kept = dict(self._buckets)
        taken = super()._take_tokens(wish, now)
        self._buckets.update(kept)
        return taken


class LeaseIsNotCounted(Sabotaged):
    caught_by = "test_what_is_leased_counts_until_its_lease_ends"

    def _take_tokens(self, wish: Take, now: float) -> Taken:
        return super()._take_tokens(replace(wish, lease=0.0), now)


class QueueRateIsReadOnce(Sabotaged):
    caught_by = "test_an_edit_of_the_rate_holds_from_the_next_take"

    def _take_tokens(self, wish: Take, now: float) -> Taken:
        if wish.scope in self._buckets and (name := limiting.queue_of(wish.scope)) is not None:
            bucket = self._buckets[wish.scope]
            self._queues[name] = replace(self._queues[name], rate=bucket.refill, burst=bucket.capacity)
        return super()._take_tokens(wish, now)


class DeclarationOverwritesAnEdit(Sabotaged):
    caught_by = "test_a_declaration_never_overwrites_an_edit"

    async def save_limit(
        self, scope: str, capacity: int, refill: float, expected: int | None = None, *, line: AuditLine | None = None
    ) -> Bucket | None:
        return await super().save_limit(scope, capacity, refill, expected or None, line=line)


class LockIsTakenFromItsHolder(Sabotaged):
    caught_by = "test_one_owner_at_a_time"

    async def seize(self, name: str, owner: str, ttl: float, *, fence: int | None = None) -> Lock:
        await super().free(name, None)
        return await super().seize(name, owner, ttl, fence=fence)


class OwnersShareAHolding(Sabotaged):
    caught_by = "test_another_holder_of_the_same_owner_takes_over_with_a_higher_fence"

    async def seize(self, name: str, owner: str, ttl: float, *, fence: int | None = None) -> Lock:
        row = self._locks.get(name)
        return await super().seize(name, owner, ttl, fence=row.fence if row and row.owner == owner else fence)


class AnybodyFreesALock(Sabotaged):
    caught_by = "test_only_its_owner_lets_go_of_a_lock"

    async def free(
        self, name: str, owner: str | None, *, fence: int | None = None, line: AuditLine | None = None
    ) -> bool:
        return await super().free(name, None, fence=fence, line=line)


class FirstHoldersExitFreesTheSeconds(Sabotaged):
    caught_by = "test_the_first_holders_exit_frees_nothing_after_a_takeover"

    async def free(
        self, name: str, owner: str | None, *, fence: int | None = None, line: AuditLine | None = None
    ) -> bool:
        return await super().free(name, owner, line=line)


class FenceComesAgain(Sabotaged):
    caught_by = "test_a_fence_never_comes_again"

    async def free(
        self, name: str, owner: str | None, *, fence: int | None = None, line: AuditLine | None = None
    ) -> bool:
        self._fence = 0
        return await super().free(name, owner, fence=fence, line=line)


class NothingAges(Sabotaged):
    caught_by = "test_a_waiting_job_gains_one_step_for_each_interval"

    def _take(self, want: Want, queue: Queue, now: float) -> list[_Row]:
        return super()._take(want, replace(queue, aging=None), now)


class AgingHasNoEnd(Sabotaged):
    caught_by = "test_aging_stops_at_the_highest_priority"

    def _take(self, want: Want, queue: Queue, now: float) -> list[_Row]:
        aging = queue.aging or math.inf
        return sorted(self._due_rows(want.queue, now), key=lambda row: row.job.run_at / aging - row.job.priority)


class LiveTimeoutOutranksTheCaller(Sabotaged):
    caught_by = "test_a_queues_timeout_replaces_one_that_the_caller_did_not_choose"

    def _charge(self, row: _Row, pod: str, token: str, queue: Queue, now: float) -> Job:
        row.job = replace(row.job, pinned=False)
        return super()._charge(row, pod, token, queue, now)


class LiveTimeoutStaysInTheRow(Sabotaged):
    caught_by = "test_a_timeout_that_is_taken_back_leaves_the_jobs_own"

    def _charge(self, row: _Row, pod: str, token: str, queue: Queue, now: float) -> Job:
        row.job = replace(row.job, timeout=queue.timeout or row.job.timeout)
        return super()._charge(row, pod, token, queue, now)


class SettingsAreForgottenByACoolDown(Sabotaged):
    caught_by = "test_a_cool_down_leaves_the_settings"

    def _cool(self, name: str, hint: float | None, now: float) -> float:
        self._queues[name] = Queue(name=name, version=self._queues[name].version)
        return super()._cool(name, hint, now)


class WarmingFreesNobody(Sabotaged):
    caught_by = "test_what_was_throttled_is_due_at_once_when_the_queue_is_warmed"

    def _edit(self, change: QueueChange, now: float) -> Applied:
        rows = {id: row.job for id, row in self._rows.items()}
        answer = super()._edit(change, now)
        for id, job in rows.items():
            self._rows[id].job = job
        return answer


class RefusedEditMakesAQueue(Sabotaged):
    caught_by = "test_a_refused_edit_makes_no_queue"

    def _edit(self, change: QueueChange, now: float) -> Applied:
        self._queues.setdefault(change.name, Queue(name=change.name))
        return super()._edit(change, now)


class NobodyHearsOfSettings(Sabotaged):
    caught_by = "test_a_listener_hears_of_edited_settings"

    def _tell(self, wake: Wake) -> None:
        super()._tell(replace(wake, settings=False))


class FirstWordCounts(Sabotaged):
    caught_by = "test_the_last_word_counts_and_outlives_its_pod"

    def _see(self, card: PodCard) -> None:
        super()._see(replace(card, about={key: said for key, said in card.about.items() if not self._catalog}))


class DeployedAtEveryStart(Sabotaged):
    caught_by = "test_a_version_keeps_its_first_sight"

    def _see_version(self, card: PodCard) -> None:
        self._deploys.pop(card.worker_version, None)
        super()._see_version(card)


class EveryVersionIsKept(Sabotaged):
    caught_by = "test_of_many_versions_those_that_registered_last_are_kept"

    def _see_version(self, card: PodCard) -> None:
        before = dict(self._deploys)
        super()._see_version(card)
        self._deploys = before | self._deploys


class NoVersionIsAVersion(Sabotaged):
    caught_by = "test_a_pod_without_a_version_is_no_deploy"

    def _see_version(self, card: PodCard) -> None:
        super()._see_version(replace(card, worker_version=card.worker_version or "none"))


@functools.cache
def every() -> list[type[Sabotaged]]:
    """All sabotaged storages."""
    from . import (
        sabotage_answers,
        sabotage_history,
        sabotage_keeping,
        sabotage_operations,
        sabotage_reports,
        sabotage_schedules,
    )

    # They are known by having been imported.
    del sabotage_answers, sabotage_history, sabotage_keeping
    del sabotage_operations, sabotage_reports, sabotage_schedules
    named = [*Sabotaged.__subclasses__(), *ClaimIgnoresGates.__subclasses__()]
    return [*named, *(_sabotaged(*each) for each in _BY_CHANGE)]
