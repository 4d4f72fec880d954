"""Gathers what an explanation is made of: a few reads of the storage, none of them on the hot path."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

from ..core import filter as filters
from ..core import limit
from ..core.errors import JobNotFound
from ..core.explain import Evidence
from ..core.job import Job, State
from ..ports import Query, Storage

# How many jobs before this one are counted, and how many of those that run are looked at.
CAP: Final = 10_000
_SOME: Final = 200
# A job that has been ready for less is nobody's worry yet: the storage is not asked what makes claims slow.
_WORRY: Final = 5.0


async def gather(storage: Storage, job_id: str) -> Evidence:
    """Everything that concerns this job now; JobNotFound."""
    found = await storage.get((job_id,))
    if not found:
        raise JobNotFound(f"there is no job {job_id}")
    (job,) = found
    now = await storage.time()
    pods = await storage.pods()
    if job.state in (State.SCHEDULED, State.READY):
        stats = next((each for each in await storage.queues() if each.queue.name == job.queue), None)
    else:
        stats = None
    queue = None if stats is None else stats.queue
    if job.state is not State.READY:
        return Evidence(now=now, job=job, queue=queue, pods=pods)
    running, ahead, slow = await asyncio.gather(
        storage.find(Query(filter=filters.parse(f'queue:"{job.queue}" state:running'), limit=_SOME)),
        _ahead(storage, job),
        _slow_claims(storage, job, now),
    )
    next_token = None
    if queue is not None and queue.rate is not None:
        buckets = {each.scope: each for each in await storage.limits()}
        bucket = buckets.get(f"{limit.OF_A_QUEUE}{queue.name}")
        next_token = None if bucket is None else limit.next_token(bucket, now)
    return Evidence(
        now=now,
        job=job,
        queue=queue,
        pods=pods,
        running=running.jobs,
        running_count=len(running.jobs) if stats is None else max(stats.running, len(running.jobs)),
        ahead=min(ahead, CAP),
        ahead_capped=ahead >= CAP,
        next_token=next_token,
        slow_claims=slow,
    )


async def _ahead(storage: Storage, job: Job) -> int:
    """Ready jobs of its queue that come before it: those of a higher priority, and the older ones of its own."""
    try:
        moment = datetime.fromtimestamp(job.run_at, UTC)
    except (ValueError, OverflowError, OSError):  # a damaged row
        return 0
    before = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    ready = f'queue:"{job.queue}" state:ready'
    more_urgent, older = await asyncio.gather(
        storage.count(filters.parse(f"{ready} priority:>{job.priority}"), CAP),
        storage.count(filters.parse(f"{ready} priority:{job.priority} due:<{before}"), CAP),
    )
    return more_urgent.get(State.READY, 0) + older.get(State.READY, 0)


async def _slow_claims(storage: Storage, job: Job, now: float) -> str:
    if now - job.run_at <= _WORRY:
        return ""
    facts = await storage.facts()
    return next((fact.text for fact in facts if fact.code == "slow-claims" and fact.level != "ok"), "")
