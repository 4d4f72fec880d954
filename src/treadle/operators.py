"""What an operator reads and does, in Python: `app.jobs`, `app.queues`, `app.pods`.

Every act is one Change that the core made. It loses races cleanly: whoever acts is told what was won, or meets a
`Conflict` that names the state which stood in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, Unpack

from msgspec.structs import replace

from .client import MOST_ROUNDS, Client, new_id
from .context import CancelAnswer, instant
from .core import catalog, lifecycle, logline, names, retention, settings
from .core import filter as filters
from .core.audit import AuditLine
from .core.counted import Counted
from .core.duration import Duration, seconds
from .core.errors import Conflict
from .core.failure import last_deploy, mark, new_since
from .core.job import Change, Job, QueueChange, State
from .core.logline import LogView
from .core.mute import Mute, check_cause
from .core.progress import ProgressView
from .core.queue import Queue, QueueStats
from .core.records import FailurePage, deploy_view, failure_view
from .core.settings import QueueSettings
from .core.view import ExplanationView, JobView, QueueView, TaskView, progress_view, queue_view, task_view
from .ports import Applied, Pruned, Query

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


class Queues:
    """`app.queues`: what is in them, and their live settings.
    An edit takes effect in all workers, with no restart; a `version` refuses an edit of something
    that somebody else has edited since it was read.

    >>> app.queues.set_sync("mail", rate="10/s", by="ann").rate
    10.0
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> Sequence[QueueView]:
        """All queues by name, with what is in each."""
        stats = await self._client.ask(lambda storage: storage.queues())
        pods = await self._client.ask(lambda storage: storage.pods())
        entries = await self._client.ask(lambda storage: storage.catalog())
        known = {each.name: each for each in catalog.survey("queue", entries, pods, 0.0)}
        return [queue_view(each, [*pods], known.get(each.queue.name)) for each in stats]

    async def get(self, name: str) -> QueueView:
        """One queue. A queue nobody has used yet is there all the same, empty, with the built-in settings."""
        names.check_name("queue", name)
        known = {each.name: each for each in await self.list()}
        return known.get(name) or queue_view(QueueStats(queue=Queue(name=name)), [])

    async def pause(
        self,
        name: str,
        *,
        reason: str | None = None,
        until: datetime | None = None,
        by: str | None = None,
        version: int | None = None,
    ) -> QueueView:
        """Claim nothing more from it. What runs goes on, and what is enqueued waits."""
        if reason is not None:
            names.check_reason(reason)
        return await self._edit(
            name,
            QueueChange(
                name=name,
                version=version,
                by=by,
                paused=True,
                paused_by=by,
                pause_reason=reason,
                paused_until=None if until is None else instant(until, "until"),
            ),
        )

    async def resume(self, name: str, *, by: str | None = None, version: int | None = None) -> QueueView:
        """End a pause: its jobs are claimed again."""
        return await self._edit(name, QueueChange(name=name, version=version, by=by, paused=False))

    async def set(
        self, name: str, *, by: str | None = None, version: int | None = None, **given: Unpack[QueueSettings]
    ) -> QueueView:
        """Live settings: `rate="100/m"`, `max_workers=10`, `keep_failed="forever"` …; None goes back to the built-in.

        What is left out stays. ValueError if one of them makes no sense; then nothing is written.
        """
        names.check_name("queue", name)
        wanted = settings.read(given)
        if not settings.is_partial(wanted):
            return await self._edit(name, replace(settings.change(name, wanted, version, None), by=by))
        # The parts of the retry override are one value of the row: what is not named must be read first.
        for _ in range(MOST_ROUNDS):
            row = await self._row(name)
            change = settings.change(name, wanted, row.version if version is None else version, row.retry)
            applied = await self._send(replace(change, by=by))
            if applied.accepted:
                return await self.get(name)
            if version is not None:
                raise Conflict(applied.error or f"queue {name} was changed by somebody else")
        raise Conflict(f"queue {name} changes faster than it can be edited; try again")

    async def scale(
        self, name: str, max_workers: int | None, *, by: str | None = None, version: int | None = None
    ) -> QueueView:
        """At most so many jobs at once in the whole cluster; 0 claims nothing, None sets no limit. Lowering it cancels
        no run: nothing is claimed until there are fewer."""
        return await self.set(name, by=by, version=version, max_workers=max_workers)

    async def _row(self, name: str) -> Queue:
        stats = await self._client.ask(lambda storage: storage.queues())
        return next((each.queue for each in stats if each.queue.name == name), Queue(name=name))

    async def warm(self, name: str, *, by: str | None = None, version: int | None = None) -> QueueView:
        """End its cool-down at once."""
        return await self._edit(name, QueueChange(name=name, version=version, by=by, cool_until=None))

    async def cool(
        self, name: str, duration: Duration, *, by: str | None = None, version: int | None = None
    ) -> QueueView:
        """Claim nothing from it for so long, as after a Throttle."""
        until = seconds(duration, "duration") + await self._client.ask(lambda storage: storage.time())
        return await self._edit(name, QueueChange(name=name, version=version, by=by, cool_until=until))

    async def _edit(self, name: str, change: QueueChange) -> QueueView:
        names.check_name("queue", name)
        applied = await self._send(change)
        if not applied.accepted:
            raise Conflict(applied.error or f"queue {name} was changed by somebody else")
        return await self.get(name)

    async def _send(self, change: QueueChange) -> Applied:
        sent = replace(change, audit=new_id())
        (applied,) = await self._client.ask(lambda storage: storage.apply((sent,)))
        return applied

    async def prune(self, name: str) -> int:
        """Remove its ended jobs that are over their age, now; how many."""
        names.check_name("queue", name)
        return sum((await self._prune(name)).values())

    async def prune_all(self) -> dict[str, dict[str, int]]:
        """The same for every queue; how many, by queue and by the state that they had ended in."""
        found = await self._client.ask(lambda storage: storage.queues())
        return {name: await self._prune(name) for name in sorted(each.queue.name for each in found)}

    async def _prune(self, name: str) -> dict[str, int]:
        removed = dict.fromkeys((state.value for state in retention.STATES), 0)
        for state in retention.STATES:
            mark: str | None = None
            while True:
                pruned = await self._prune_chunk(name, state, mark)
                removed[state.value] += pruned.removed
                mark = pruned.mark
                if mark is None:
                    break
        return removed

    async def _prune_chunk(self, name: str, state: State, mark: str | None) -> Pruned:
        return await self._client.ask(lambda storage: storage.prune(state, queue=name, mark=mark))

    def prune_sync(self, name: str) -> int:
        return self._client.run_sync(self.prune(name))

    def prune_all_sync(self) -> dict[str, dict[str, int]]:
        return self._client.run_sync(self.prune_all())

    def list_sync(self) -> Sequence[QueueView]:
        return self._client.run_sync(self.list())

    def get_sync(self, name: str) -> QueueView:
        return self._client.run_sync(self.get(name))

    def pause_sync(
        self,
        name: str,
        *,
        reason: str | None = None,
        until: datetime | None = None,
        by: str | None = None,
        version: int | None = None,
    ) -> QueueView:
        return self._client.run_sync(self.pause(name, reason=reason, until=until, by=by, version=version))

    def resume_sync(self, name: str, *, by: str | None = None, version: int | None = None) -> QueueView:
        return self._client.run_sync(self.resume(name, by=by, version=version))

    def set_sync(
        self, name: str, *, by: str | None = None, version: int | None = None, **given: Unpack[QueueSettings]
    ) -> QueueView:
        return self._client.run_sync(self.set(name, by=by, version=version, **given))

    def scale_sync(
        self, name: str, max_workers: int | None, *, by: str | None = None, version: int | None = None
    ) -> QueueView:
        return self._client.run_sync(self.scale(name, max_workers, by=by, version=version))

    def cool_sync(
        self, name: str, duration: Duration, *, by: str | None = None, version: int | None = None
    ) -> QueueView:
        return self._client.run_sync(self.cool(name, duration, by=by, version=version))

    def warm_sync(self, name: str, *, by: str | None = None, version: int | None = None) -> QueueView:
        return self._client.run_sync(self.warm(name, by=by, version=version))


class Catalog:
    """`app.catalog`: what pods say of the tasks they know, those of former deployments among them.

    >>> [task.name for task in app.catalog.tasks_sync()]
    ['send']
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tasks(self) -> Sequence[TaskView]:
        """All known tasks by name, with who owns them, which live pods know them and where those disagree."""
        entries = await self._client.ask(lambda storage: storage.catalog())
        pods = await self._client.ask(lambda storage: storage.pods())
        now = await self._client.ask(lambda storage: storage.time())
        return [task_view(known) for known in catalog.survey("task", entries, pods, now)]

    async def task(self, name: str) -> TaskView | None:
        """One task; None if no pod has ever told of it."""
        return next((task for task in await self.tasks() if task.name == name), None)

    def tasks_sync(self) -> Sequence[TaskView]:
        return self._client.run_sync(self.tasks())

    def task_sync(self, name: str) -> TaskView | None:
        return self._client.run_sync(self.task(name))


def _when(delay: Duration | None, at: datetime | None) -> tuple[float, float | None]:
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other: give one of them")
    return 0.0 if delay is None else seconds(delay, "delay"), None if at is None else instant(at, "at")
