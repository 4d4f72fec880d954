"""What an operator reads and does, in Python: `app.jobs`, `app.queues`, `app.pods`.

Every act is one Change that the core made. It loses races cleanly: whoever acts is told what was won, or meets a
`Conflict` that names the state which stood in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from .client import Client
from .context import CancelAnswer, instant
from .core import filter as filters
from .core import lifecycle, names
from .core.duration import Duration, seconds
from .core.errors import Conflict
from .core.job import Change, Job, QueueChange, State
from .core.queue import Queue, QueueStats
from .core.view import JobView, PodView, QueueView, job_view, pod_view, queue_view
from .ports import Query

LARGEST_PAGE: Final = 1000

RemoveAnswer = Literal["removed", "cancelled", "asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Some of the jobs that match, each with its last error only. `next` is the cursor of the page after it."""

    jobs: tuple[JobView, ...]
    next: str | None
    # Set if terms that no index serves were answered from that many of the newest jobs instead of from all.
    newest_only: int | None


class Jobs:
    """`app.jobs`. Filters are the language of the dashboard: `state:failed queue:mail age:>1h`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, job_id: str) -> JobView:
        """One job with its whole error history; JobNotFound."""
        return await self._client.status(job_id)

    async def find(
        self, filter_text: str = "", *, limit: int = 50, cursor: str | None = None, next_first: bool = False
    ) -> JobPage:
        """The jobs that match, newest first; with `next_first` by the time they are due."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise ValueError(f"limit must be from 1 to {LARGEST_PAGE}")
        query = Query(filter=filters.parse(filter_text), limit=limit, cursor=cursor, next_first=next_first)
        page = await self._client.ask(lambda storage: storage.find(query))
        return JobPage(jobs=tuple(map(job_view, page.jobs)), next=page.next, newest_only=page.newest_only)

    async def count(self, filter_text: str = "", *, cap: int = 10_000) -> dict[str, int]:
        """How many jobs match, by state; every state is there, and no count is higher than `cap`."""
        parsed = filters.parse(filter_text)
        counts: Mapping[State, int] = await self._client.ask(lambda storage: storage.count(parsed, cap))
        return {state.value: counts.get(state, 0) for state in State}

    async def cancel(self, job_id: str, *, within: object = None) -> CancelAnswer:
        """Cancel what has not started, ask what runs. `within` makes it part of the caller's transaction."""
        return await self._client.cancel(job_id, within=within)

    async def revive(
        self,
        job_id: str,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
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

        await self._change(job_id, decide, "only an ended job can be revived")
        return "revived"

    async def reschedule(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> Literal["rescheduled"]:
        """Another time for a job that has not started; without `delay` and `at`, now. Conflict in any other state."""
        wait, run_at = _when(delay, at)

        def decide(job: Job) -> Change | None:
            return lifecycle.reschedule(job, delay=wait, run_at=run_at)

        await self._change(job_id, decide, "only a scheduled or ready job can be rescheduled")
        return "rescheduled"

    async def remove(self, job_id: str) -> RemoveAnswer:
        """Forget an ended job. One that is alive is cancelled instead, and the answer says so; JobNotFound."""
        _, change, _ = await self._client.change(job_id, lambda job: lifecycle.remove(job) or lifecycle.cancel(job))
        assert change is not None  # a job is ended, or can be cancelled
        return "removed" if change.remove else "asked" if change.to is State.RUNNING else "cancelled"

    async def _change(self, job_id: str, decide: Callable[[Job], Change | None], rule: str) -> None:
        job, change, _ = await self._client.change(job_id, decide)
        if change is None:
            raise Conflict(f"job {job_id} is {job.state}: {rule}")

    def get_sync(self, job_id: str) -> JobView:
        return self._client.run_sync(self.get(job_id))

    def find_sync(
        self, filter_text: str = "", *, limit: int = 50, cursor: str | None = None, next_first: bool = False
    ) -> JobPage:
        return self._client.run_sync(self.find(filter_text, limit=limit, cursor=cursor, next_first=next_first))

    def count_sync(self, filter_text: str = "", *, cap: int = 10_000) -> dict[str, int]:
        return self._client.run_sync(self.count(filter_text, cap=cap))

    def cancel_sync(self, job_id: str, *, within: object = None) -> CancelAnswer:
        return self._client.cancel_sync(job_id, within=within)

    def revive_sync(
        self,
        job_id: str,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
    ) -> Literal["revived"]:
        return self._client.run_sync(self.revive(job_id, delay=delay, at=at, priority=priority, queue=queue))

    def reschedule_sync(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> Literal["rescheduled"]:
        return self._client.run_sync(self.reschedule(job_id, delay=delay, at=at))

    def remove_sync(self, job_id: str) -> RemoveAnswer:
        return self._client.run_sync(self.remove(job_id))


class Queues:
    """`app.queues`. An edit takes effect in all workers, with no restart; a `version` refuses an edit of something
    that somebody else has edited since it was read."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> Sequence[QueueView]:
        stats = await self._client.ask(lambda storage: storage.queues())
        pods = await self._client.ask(lambda storage: storage.pods())
        return [queue_view(each, [*pods]) for each in stats]

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
                paused=True,
                paused_by=by,
                pause_reason=reason,
                paused_until=None if until is None else instant(until, "until"),
            ),
        )

    async def resume(self, name: str, *, version: int | None = None) -> QueueView:
        return await self._edit(name, QueueChange(name=name, version=version, paused=False))

    async def set(
        self, name: str, *, max_workers: int | UnsetType | None = UNSET, version: int | None = None
    ) -> QueueView:
        """Live settings. `max_workers` is for the whole cluster: 0 claims nothing, None sets no limit."""
        if isinstance(max_workers, int) and max_workers < 0:
            raise ValueError("max_workers must be 0 or more; None sets no limit")
        return await self._edit(name, QueueChange(name=name, version=version, max_workers=max_workers))

    async def warm(self, name: str, *, version: int | None = None) -> QueueView:
        """End its cool-down at once."""
        return await self._edit(name, QueueChange(name=name, version=version, cool_until=None))

    async def _edit(self, name: str, change: QueueChange) -> QueueView:
        names.check_name("queue", name)
        (applied,) = await self._client.ask(lambda storage: storage.apply((change,)))
        if not applied.accepted:
            raise Conflict(applied.error or f"queue {name} was changed by somebody else")
        return await self.get(name)

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

    def resume_sync(self, name: str, *, version: int | None = None) -> QueueView:
        return self._client.run_sync(self.resume(name, version=version))

    def set_sync(
        self, name: str, *, max_workers: int | UnsetType | None = UNSET, version: int | None = None
    ) -> QueueView:
        return self._client.run_sync(self.set(name, max_workers=max_workers, version=version))

    def warm_sync(self, name: str, *, version: int | None = None) -> QueueView:
        return self._client.run_sync(self.warm(name, version=version))


class Pods:
    """`app.pods`: the workers, the lapsed and the lost among them until upkeep forgets them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self) -> Sequence[PodView]:
        return [pod_view(pod) for pod in await self._client.ask(lambda storage: storage.pods())]

    def list_sync(self) -> Sequence[PodView]:
        return self._client.run_sync(self.list())


def _when(delay: Duration | None, at: datetime | None) -> tuple[float, float | None]:
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other: give one of them")
    return 0.0 if delay is None else seconds(delay, "delay"), None if at is None else instant(at, "at")
