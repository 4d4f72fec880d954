"""What many cases do first, and the class that all of them stand on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import lifecycle
from ...core.filter import parse
from ...core.job import Change, Job, NewJob, QueueChange
from ...core.outcome import Outcome
from ...core.queue import Queue, QueueStats
from ...ports import Applied, Page, Query, Storage, Want
from ..clock import FakeClock
from .builders import LEASE, a_job, a_pod, a_token, finished, only, want


class Cases:
    """Test methods about one subject. Each gets a fresh `storage`, open and empty, and the `clock` that it reads."""

    async def make(self, clock: FakeClock) -> Storage:
        """A storage that is not open yet. Called a second time inside one case, a storage whose capability is
        `shared` must come to the same place as the first."""
        raise NotImplementedError


async def a_live_pod(storage: Storage, **fields: Any) -> str:
    card = a_pod(**fields)
    await storage.register(card)
    return card.id


async def put(storage: Storage, *jobs: NewJob, **fields: Any) -> str:
    """Insert these jobs, or one with these fields; the id of the last."""
    requests = jobs or (a_job(**fields),)
    for answer in await storage.insert(requests):
        assert answer.outcome == "inserted"
    return requests[-1].id


async def take(storage: Storage, pod: str, *wants: Want) -> Sequence[Job]:
    """Claim under a fresh token."""
    return (await storage.claim(pod, a_token(), wants or (want(),))).jobs


async def take_one(storage: Storage, pod: str, queue: str = "default") -> Job:
    jobs = await take(storage, pod, want(queue, limit=1))
    assert len(jobs) == 1
    return jobs[0]


async def start(storage: Storage, pod: str | None = None, **fields: Any) -> Job:
    """A job that runs: inserted and claimed. Nothing else may be claimable in its queue."""
    pod = pod or await a_live_pod(storage)
    id = await put(storage, **fields)
    job = await take_one(storage, pod, fields.get("queue", "default"))
    assert job.id == id
    return job


async def write(storage: Storage, change: Change | QueueChange | None) -> Applied:
    assert change is not None
    return only(await storage.apply([change]))


async def end(storage: Storage, job: Job, outcome: Outcome) -> Job:
    """Finish a run, and see what became of it."""
    answer = await write(storage, finished(job, outcome))
    assert answer.accepted
    return await look(storage, job.id)


async def look(storage: Storage, id: str) -> Job:
    return only(await storage.get([id]))


async def rescue(storage: Storage, job: Job) -> Job:
    answer = await write(storage, lifecycle.rescue(job, "pod-on-test"))
    assert answer.accepted
    return await look(storage, job.id)


async def start_and_lose(storage: Storage, clock: FakeClock, **fields: Any) -> tuple[Job, Job]:
    """The same job as its first pod believes to run it, and as its second pod really runs it."""
    old = await start(storage, **fields)
    clock.advance(LEASE + 1)
    await rescue(storage, old)
    pod = await a_live_pod(storage)
    new = await take_one(storage, pod, old.queue)
    assert new.id == old.id
    return old, new


async def edit(storage: Storage, name: str = "default", **fields: Any) -> None:
    answer = await write(storage, QueueChange(name=name, **fields))
    assert answer.accepted


async def stats(storage: Storage, name: str = "default") -> QueueStats:
    return only([each for each in await storage.queues() if each.queue.name == name])


async def queue(storage: Storage, name: str = "default") -> Queue:
    return (await stats(storage, name)).queue


async def search(storage: Storage, text: str = "", **fields: Any) -> Page:
    return await storage.find(Query(filter=parse(text), **fields))


async def ids(storage: Storage, text: str = "", **fields: Any) -> list[str]:
    return [job.id for job in (await search(storage, text, **fields)).jobs]
