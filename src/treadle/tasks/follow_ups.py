"""Declared follow-ups: what a task says shall be enqueued when one of its jobs ends in this way or that.

They are part of the Change that writes the end, and so of its commit. One that cannot be built is logged and counted,
and the end is written without it: a job must not fail because somebody could not be told.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..context.context import Call, Door, as_child
from ..core.job import Change, Job, NewJob
from ..hooks import after
from .task import FOLLOWED, Task

if TYPE_CHECKING:
    from ..core.view import JobView

log = logging.getLogger("treadle.follow")


class FollowUps:
    def __init__(self, find: Callable[[str], Task[..., Any] | None], door: Door | None) -> None:
        self.errors: Counter[str] = Counter()  # by task
        self._find = find
        self._door = door

    def added(self, change: Change, job: Job) -> Change:
        """The Change with what its task declares for such an end. A Change made by somebody who does not know the task
        (a rescue by another app's pod) stays as it is."""
        task = self._find(job.task)
        if task is None or not task.followed or self._door is None:
            return change
        builders = task.followed.get(FOLLOWED.get(change.why, ""), ())
        if not builders:
            return change
        from ..core.view import job_view

        view = job_view(after(job, change))
        door = self._door
        built = [new for builder in builders for new in self._built(builder, view, job, door)]
        return msgspec.structs.replace(change, follow_ups=(*change.follow_ups, *built)) if built else change

    def _built(self, builder: Callable[[JobView], Any], view: JobView, job: Job, door: Door) -> Sequence[NewJob]:
        try:
            asked = builder(view)
            calls: list[Any] = [] if asked is None else [asked] if isinstance(asked, Call) else list(asked)
            return [door.prepare(as_child(call, job.id)) for call in calls]
        except Exception:
            self.errors[job.task] += 1
            log.exception("job %s: a follow-up of %s cannot be built, and is left out", job.id, job.task)
            return ()
