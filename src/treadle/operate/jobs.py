"""`app.jobs`: what an operator asks of jobs, and does to them.

Every act is one Change that the core made. It loses races cleanly: whoever acts is told what was won, or meets a
`Conflict` that names the state which stood in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from ..client.client import Client, new_id
from ..context.context import CancelAnswer, instant
from ..core import filter as filters
from ..core import lifecycle, logline, names
from ..core.audit import AuditLine
from ..core.counted import Counted
from ..core.duration import Duration, seconds
from ..core.errors import Conflict
from ..core.failure import last_deploy, mark, new_since
from ..core.job import Change, Job, State
from ..core.logline import LogView
from ..core.mute import Mute, check_cause
from ..core.progress import ProgressView
from ..core.records import FailurePage, deploy_view, failure_view
from ..core.view import ExplanationView, JobView, progress_view
from ..ports import Query

LARGEST_PAGE: Final = 1000
MOST_LOG_LINES: Final = 10_000

RemoveAnswer = Literal["removed", "cancelled", "asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Some of the jobs that match, each with its last error only. `next` is the cursor of the page after it.

    >>> page = app.jobs.find_sync("state:failed", limit=10)
    >>> len(page.jobs), page.next
    (1, None)
    """

    jobs: tuple[JobView, ...]
    next: str | None
    # Set if terms that no index serves were answered from that many of the newest jobs instead of from all.
    newest_only: int | None


class Jobs:
    """`app.jobs`: what can be asked of jobs, and done to them.
    Filters are the language of the dashboard: `state:failed queue:mail age:>1h`.

    >>> app.jobs.count_sync("queue:mail")["failed"]
    1
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, job_id: str) -> JobView:
        """One job with its whole error history; JobNotFound."""
        return await self._client.status(job_id)

    async def explain(self, job_id: str) -> ExplanationView:
        """Why it is not running, or where it is: the causes in words, the one to act on first; JobNotFound."""
        return await self._client.explain(job_id)

    async def progress(self, job_id: str) -> ProgressView | None:
        """How far a job has come, as its task last said; None if it has said nothing, or has succeeded."""
        found = await self._client.ask(lambda storage: storage.progress((job_id,)))
        return progress_view(found[0]) if found else None

    async def logs(self, job_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[LogView]:
        """The last lines that a job's runs have logged, oldest first; with `after`, those behind the line with this
        number (`line.n`), so that a page can follow. Of an attempt the last 1000 lines and 64 KiB are kept."""
        if not 1 <= limit <= MOST_LOG_LINES:
            raise ValueError(f"limit must be from 1 to {MOST_LOG_LINES}")
        lines = await self._client.ask(lambda storage: storage.logs(job_id, after, limit))
        return [logline.view(line) for line in lines]

    async def find(
        self, filter_text: str = "", *, limit: int = 50, cursor: str | None = None, next_first: bool = False
    ) -> JobPage:
        """The jobs that match, newest first; with `next_first` by the time they are due."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise ValueError(f"limit must be from 1 to {LARGEST_PAGE}")
        query = Query(filter=filters.parse(filter_text), limit=limit, cursor=cursor, next_first=next_first)
        try:
            page = await self._client.ask(lambda storage: storage.find(query))
        except (ValueError, OverflowError):
            if cursor is None:
                raise
            raise ValueError("cursor is not one that a page has given as its next") from None
        views = await self._client.views(page.jobs)
        return JobPage(jobs=tuple(views), next=page.next, newest_only=page.newest_only)

    async def count(self, filter_text: str = "", *, cap: int = 10_000) -> Counted[str]:
        """How many jobs match, by state; every state is there, and no count is higher than `cap`. Where no index served
        and not every row was looked at, `at_least` of the answer names the states of which there may be more."""
        parsed = filters.parse(filter_text)
        counts: Mapping[State, int] = await self._client.ask(lambda storage: storage.count(parsed, cap))
        unsure = counts.at_least if isinstance(counts, Counted) else ()
        return Counted({state.value: counts.get(state, 0) for state in State}, [state.value for state in unsure])

    async def cancel(
        self, job_id: str, *, within: object = None, by: str | None = None, reason: str | None = None
    ) -> CancelAnswer:
        """Cancel what has not started, ask what runs. `within` makes it part of the caller's transaction. With `by`,
        here and in the verbs below, the act stands in the job's timeline and, with the `reason`, in the audit: both
        are written in the transaction of the act."""
        if reason is not None:
            names.check_reason(reason)
        return await self._client.cancel(job_id, within=within, by=by, reason=reason)

    async def revive(
        self,
        job_id: str,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Literal["revived"]:
        """Give an ended job another life, with all its attempts. Conflict if it has not ended, or if a live job holds
        its unique key."""
        wait, run_at = _when(delay, at)
        if priority is not None:
            names.check_priority(priority)
        if queue is not None:
            names.check_name("queue", queue)

        def decide(job: Job) -> Change | None:
            return lifecycle.revive(job, delay=wait, run_at=run_at, priority=priority, queue=queue)

        await self._change("revive", job_id, decide, "only an ended job can be revived", by, reason)
        return "revived"

    async def reschedule(
        self,
        job_id: str,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Literal["rescheduled"]:
        """Another time for a job that has not started; without `delay` and `at`, now. Conflict in any other state."""
        wait, run_at = _when(delay, at)

        def decide(job: Job) -> Change | None:
            return lifecycle.reschedule(job, delay=wait, run_at=run_at)

        rule = "only a scheduled or ready job can be rescheduled"
        await self._change("reschedule", job_id, decide, rule, by, reason)
        return "rescheduled"

    async def move(
        self, job_id: str, queue: str, *, by: str | None = None, reason: str | None = None
    ) -> Literal["moved"]:
        """Another queue for a job that has not started; its time stays. Conflict in any other state."""
        names.check_name("queue", queue)
        rule = "only what has not started can be moved"
        await self._change("move", job_id, lambda job: lifecycle.move(job, queue), rule, by, reason)
        return "moved"

    async def priority(
        self, job_id: str, priority: int, *, by: str | None = None, reason: str | None = None
    ) -> Literal["reprioritised"]:
        """Another priority for a job that has not started. Conflict in any other state."""
        names.check_priority(priority)
        rule = "only what has not started can be given another priority"
        await self._change("priority", job_id, lambda job: lifecycle.set_priority(job, priority), rule, by, reason)
        return "reprioritised"

    async def failures(self, *, queue: str | None = None, task: str | None = None, limit: int = 50) -> FailurePage:
        """Why attempts fail: jobs that failed for good and jobs that wait for a retry, grouped by cause (task,
        exception, place), the largest group first. Of the newest 10,000 failures and of 10,000 retries. A cause is new
        if it was first seen since the last deploy (`deploy` of the answer) or, if none is known, in the last 24 h."""
        found = await self._client.ask(lambda storage: storage.failures(queue=queue, task=task, limit=limit))
        mutes = {each.cause: each for each in await self._client.ask(lambda storage: storage.mutes())}
        deploys = await self._client.ask(lambda storage: storage.deploys())
        now = await self._client.ask(lambda storage: storage.time())
        deploy = last_deploy(deploys, now)
        groups = tuple(
            failure_view(group, mutes.get(group.cause), mark(found, group, deploy, now)) for group in found.groups
        )
        return FailurePage(
            groups=groups,
            looked_at=found.looked_at,
            capped=found.capped,
            new_since=datetime.fromtimestamp(new_since(deploy, now), UTC),
            deploy=None if deploy is None else deploy_view(deploy),
        )

    async def mute(
        self,
        cause: str,
        until: datetime | Duration | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        """People know of this cause of failures (`FailureView.cause`): it is folded, and left out of what is shown
        first. Until a moment or for so long; without, until it is unmuted. No job is changed."""
        check_cause(cause)
        if reason is not None:
            names.check_reason(reason)
        now = await self._client.ask(lambda storage: storage.time())
        if isinstance(until, datetime):
            end: float | None = instant(until, "until")
        else:
            end = None if until is None else now + seconds(until, "until")
        if end is not None and end <= now:
            raise ValueError("until is over already")
        detail = "" if end is None else f"until {datetime.fromtimestamp(end, UTC):%Y-%m-%d %H:%M:%S}Z"
        line = AuditLine(id=new_id(), act="jobs.mute", subject=cause, by=by, reason=reason, detail=detail)
        wanted = Mute(cause=cause, until=end, who=by)
        await self._client.ask(lambda storage: storage.mute(wanted, line=line))

    async def unmute(self, cause: str, *, by: str | None = None, reason: str | None = None) -> bool:
        """Show it first again; whether it was muted."""
        check_cause(cause)
        if reason is not None:
            names.check_reason(reason)
        line = AuditLine(id=new_id(), act="jobs.unmute", subject=cause, by=by, reason=reason)
        return await self._client.ask(lambda storage: storage.unmute(cause, line=line))

    async def remove(
        self, job_id: str, *, only_ended: bool = False, by: str | None = None, reason: str | None = None
    ) -> RemoveAnswer:
        """Forget an ended job. One that is alive is cancelled instead, and the answer says so; with `only_ended`, it is
        left alone: Conflict, also for a job that was revived after the caller saw its end. JobNotFound."""

        def decide(job: Job) -> Change | None:
            return lifecycle.remove(job) or (None if only_ended else lifecycle.cancel(job))

        change = await self._change("delete", job_id, decide, "cancel it first", by, reason)
        return "removed" if change.remove else "asked" if change.to is State.RUNNING else "cancelled"

    async def _change(
        self,
        act: str,
        job_id: str,
        decide: Callable[[Job], Change | None],
        rule: str,
        by: str | None,
        reason: str | None,
    ) -> Change:
        if reason is not None:
            names.check_reason(reason)
        job, change, _ = await self._client.change(job_id, decide, act, by=by, reason=reason)
        if change is None:
            raise Conflict(f"job {job_id} is {job.state}: {rule}")
        return change

    def get_sync(self, job_id: str) -> JobView:
        return self._client.run_sync(self.get(job_id))

    def explain_sync(self, job_id: str) -> ExplanationView:
        return self._client.run_sync(self.explain(job_id))

    def progress_sync(self, job_id: str) -> ProgressView | None:
        return self._client.run_sync(self.progress(job_id))

    def logs_sync(self, job_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[LogView]:
        return self._client.run_sync(self.logs(job_id, after=after, limit=limit))

    def find_sync(
        self, filter_text: str = "", *, limit: int = 50, cursor: str | None = None, next_first: bool = False
    ) -> JobPage:
        return self._client.run_sync(self.find(filter_text, limit=limit, cursor=cursor, next_first=next_first))

    def count_sync(self, filter_text: str = "", *, cap: int = 10_000) -> dict[str, int]:
        return self._client.run_sync(self.count(filter_text, cap=cap))

    def cancel_sync(
        self, job_id: str, *, within: object = None, by: str | None = None, reason: str | None = None
    ) -> CancelAnswer:
        return (
            self._client.run_sync(self.cancel(job_id, by=by, reason=reason))
            if within is None
            else self._client.cancel_sync(job_id, within=within, by=by, reason=reason)
        )

    def revive_sync(
        self,
        job_id: str,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Literal["revived"]:
        return self._client.run_sync(
            self.revive(job_id, delay=delay, at=at, priority=priority, queue=queue, by=by, reason=reason)
        )

    def reschedule_sync(
        self,
        job_id: str,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Literal["rescheduled"]:
        return self._client.run_sync(self.reschedule(job_id, delay=delay, at=at, by=by, reason=reason))

    def move_sync(
        self, job_id: str, queue: str, *, by: str | None = None, reason: str | None = None
    ) -> Literal["moved"]:
        return self._client.run_sync(self.move(job_id, queue, by=by, reason=reason))

    def priority_sync(
        self, job_id: str, priority: int, *, by: str | None = None, reason: str | None = None
    ) -> Literal["reprioritised"]:
        return self._client.run_sync(self.priority(job_id, priority, by=by, reason=reason))

    def failures_sync(self, *, queue: str | None = None, task: str | None = None, limit: int = 50) -> FailurePage:
        return self._client.run_sync(self.failures(queue=queue, task=task, limit=limit))

    def mute_sync(
        self,
        cause: str,
        until: datetime | Duration | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        self._client.run_sync(self.mute(cause, until, by=by, reason=reason))

    def unmute_sync(self, cause: str, *, by: str | None = None, reason: str | None = None) -> bool:
        return self._client.run_sync(self.unmute(cause, by=by, reason=reason))

    def remove_sync(
        self, job_id: str, *, only_ended: bool = False, by: str | None = None, reason: str | None = None
    ) -> RemoveAnswer:
        return self._client.run_sync(self.remove(job_id, only_ended=only_ended, by=by, reason=reason))


def _when(delay: Duration | None, at: datetime | None) -> tuple[float, float | None]:
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other: give one of them")
    return 0.0 if delay is None else seconds(delay, "delay"), None if at is None else instant(at, "at")
