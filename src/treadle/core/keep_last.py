"""Kept requests (`on_conflict="keep_last"`): what is asked for while the same thing is under way.

A request whose key is held by a job that runs is kept inside that job's row: one place, which the newest request takes
and whose id stays that of the first. The write that ends the run makes a job of it (`lifecycle.take_over`), so there is
never a second live job with the key, and nothing that could be lost in between.

It is a NewJob as JSON. The key is the one that the holder has: the window it was asked for in, whenever it becomes a
job. Its delay has become an instant, and `asked_at` is when the first of them was asked for.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from . import unique
from .job import Job, NewJob, State, UniqueClaim

_to_json: Final = msgspec.json.Encoder().encode
_of_json: Final = msgspec.json.Decoder(NewJob).decode


def keep(new: NewJob, key: str, now: float, before: str | None = None) -> str:
    """What a row keeps of a request; `before` is what it has kept until now."""
    earlier = None if before is None else request_of(before)
    first = now if earlier is None or earlier.asked_at is None else earlier.asked_at
    id = new.id if earlier is None else earlier.id
    due = unique.due(new, now, first)
    kept = replace(new, id=id, delay=0.0, run_at=due, asked_at=first, unique=UniqueClaim(key))
    return _to_json(kept).decode()


def request_of(kept: str) -> NewJob | None:
    """The request that is kept; None if no code of ours can have written it."""
    try:
        return _of_json(kept)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def id_of(kept: str | None) -> str | None:
    """The id that it will have as a job."""
    new = None if kept is None else request_of(kept)
    return None if new is None else new.id


def job_of(kept: str, holder: str) -> Job | None:
    """The request as a reader sees it before it is a job: waiting, behind its holder."""
    new = request_of(kept)
    if new is None:
        return None
    return Job(
        id=new.id,
        task=new.task,
        queue=new.queue,
        state=State.WAITING,
        args=new.args,
        format=new.format,
        priority=new.priority,
        run_at=new.run_at or 0.0,
        created_at=new.asked_at or 0.0,
        max_attempts=new.max_attempts,
        timeout=new.timeout,
        pinned=new.pinned,
        tags=new.tags,
        meta=new.meta,
        reason=new.reason,
        unique_key=None if new.unique is None else new.unique.key,
        kept=kept,
        behind=holder,
    )
