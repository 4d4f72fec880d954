"""`app.operations`: acts upon many jobs.

An operation is a row that outlives whoever asked for it. The leader among the workers works it off; where there is
none, `run` does it here, in the same way.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypedDict, Unpack

from ..client.client import MOST_ROUNDS, Client, new_id
from ..context.context import instant
from ..core import operation as operating
from ..core import records
from ..core.duration import Duration, seconds
from ..core.errors import Conflict, OperationNotFound, ResultTimeout
from ..core.filter import Filter, parse
from ..core.job import Job, State
from ..core.operation import Act, Operation
from ..core.records import OperationView, Preview, operation_view
from ..ports import Page, Query

PREVIEWED: Final = 10_000
_PAGE: Final = 1_000
_LONGEST_PREVIEW: Final = 5.0
_COUNTED_FOR: Final = 1.0
_MOST_COUNTED: Final = 100_000_000
_POLL: Final = 0.25

Progress = Callable[[OperationView], None]


class Options(TypedDict, total=False):
    """What an act may be told: `queue` for move, `priority` for priority, a time for reschedule, all of them for
    revive. `everything` in the place of a filter means all jobs there are."""

    everything: bool
    delay: Duration | None
    at: datetime | None
    priority: int | None
    queue: str | None
    by: str | None
    reason: str | None


class Operations:
    """`app.operations`: revive, cancel, reschedule, priority, move or delete all jobs that a filter describes.

    >>> app.operations.preview_sync("revive", "state:failed queue:mail").matched
    1
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def preview(self, act: Act, filter_text: str = "", **options: Unpack[Options]) -> Preview:
        """What it would do. Of up to 10,000 jobs each is looked at; more are counted by state, for a second at most;
        where that is too short, `capped` says that there are more. Nothing is written."""
        wanted = _wanted(act, filter_text, options)
        which = parse(wanted.filter)
        jobs: list[Job] = []
        cursor: str | None = None
        until = time.monotonic() + _LONGEST_PREVIEW
        while len(jobs) < PREVIEWED and time.monotonic() < until:
            page = await self._find(Query(filter=which, limit=_PAGE, cursor=cursor))
            jobs += page.jobs
            cursor = page.next or page.resume
            if cursor is None:
                break
        found = records.preview(wanted, jobs[:PREVIEWED], capped=cursor is not None)
        return found if cursor is None else records.counted(found, await self._count(which))

    async def _count(self, which: Filter) -> Mapping[State, int]:
        try:
            async with asyncio.timeout(_COUNTED_FOR):
                return await self._client.ask(lambda storage: storage.count(which, _MOST_COUNTED))
        except TimeoutError:
            return {}

    async def start(
        self, act: Act, filter_text: str = "", *, attended: bool = False, **options: Unpack[Options]
    ) -> OperationView:
        """Ask for it. The leading worker takes it up within a second or two; `attended` tells it that the caller will
        do so by `run`, and that it should wait until nothing happens any more."""
        wanted = _wanted(act, filter_text, options, attended=attended)
        saved = await self._save(wanted, None)
        assert saved is not None
        return operation_view(saved)

    async def run(self, operation_id: str, progress: Progress | None = None) -> OperationView:
        """Work it off here, until it is over. Others may do so too: nothing is done twice."""
        from ..runtime.services.operator import work

        found = await self._get(operation_id)
        while found.state in operating.UNDER_WAY:
            done = await self._client.ask(functools.partial(work, found=found))
            found = done if done is not None else await self._get(operation_id)
            if progress is not None:
                progress(operation_view(found))
        return operation_view(found)

    async def list(self, limit: int = 50) -> Sequence[OperationView]:
        """The newest first, and those that are under way before all others."""
        return [operation_view(each) for each in await self._client.ask(lambda storage: storage.operations(limit))]

    async def get(self, operation_id: str) -> OperationView:
        """One operation; OperationNotFound."""
        return operation_view(await self._get(operation_id))

    async def stop(self, operation_id: str, *, by: str | None = None) -> OperationView:
        """It stops before the next chunk. Conflict if it is over already."""
        return await self._edit(operation_id, lambda found: operating.stop(found, by), "it is over")

    async def resume(self, operation_id: str, *, attended: bool = False, by: str | None = None) -> OperationView:
        """Go on with one that was stopped, has failed or lost whoever worked on it. Conflict if it is finished."""
        return await self._edit(
            operation_id, lambda found: operating.resume(found, attended=attended, by=by), "nothing is left to do"
        )

    async def wait(self, operation_id: str, timeout: Duration | None = None) -> OperationView:
        """Until it is over; ResultTimeout if it takes longer, and it goes on."""
        until = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        while not (found := await self.get(operation_id)).is_over:
            if until is not None and time.monotonic() >= until:
                raise ResultTimeout(f"operation {operation_id} is not over yet; it goes on")
            await asyncio.sleep(_POLL)
        return found

    async def _find(self, query: Query) -> Page:
        return await self._client.ask(lambda storage: storage.find(query))

    async def _save(self, wanted: Operation, expected: int | None) -> Operation | None:
        return await self._client.ask(lambda storage: storage.save_operation(wanted, expected))

    async def _get(self, operation_id: str) -> Operation:
        found = await self._client.ask(lambda storage: storage.operation(operation_id))
        if found is None:
            raise OperationNotFound(f"there is no operation {operation_id}")
        return found

    async def _edit(
        self, operation_id: str, decide: Callable[[Operation], Operation | None], rule: str
    ) -> OperationView:
        for _ in range(MOST_ROUNDS):
            found = await self._get(operation_id)
            wanted = decide(found)
            if wanted is None:
                raise Conflict(f"operation {operation_id} is {found.state}: {rule}")
            saved = await self._save(wanted, found.version)
            if saved is not None:
                return operation_view(saved)
        raise Conflict(f"operation {operation_id} changes faster than it can be edited; try again")

    def preview_sync(self, act: Act, filter_text: str = "", **options: Unpack[Options]) -> Preview:
        return self._client.run_sync(self.preview(act, filter_text, **options))

    def start_sync(
        self, act: Act, filter_text: str = "", *, attended: bool = False, **options: Unpack[Options]
    ) -> OperationView:
        return self._client.run_sync(self.start(act, filter_text, attended=attended, **options))

    def run_sync(self, operation_id: str, progress: Progress | None = None) -> OperationView:
        return self._client.run_sync(self.run(operation_id, progress))

    def list_sync(self, limit: int = 50) -> Sequence[OperationView]:
        return self._client.run_sync(self.list(limit))

    def get_sync(self, operation_id: str) -> OperationView:
        return self._client.run_sync(self.get(operation_id))

    def stop_sync(self, operation_id: str, *, by: str | None = None) -> OperationView:
        return self._client.run_sync(self.stop(operation_id, by=by))

    def resume_sync(self, operation_id: str, *, attended: bool = False, by: str | None = None) -> OperationView:
        return self._client.run_sync(self.resume(operation_id, attended=attended, by=by))

    def wait_sync(self, operation_id: str, timeout: Duration | None = None) -> OperationView:
        return self._client.run_sync(self.wait(operation_id, timeout))


def _wanted(act: Act, filter_text: str, options: Options, *, attended: bool = False) -> Operation:
    delay, at = options.get("delay"), options.get("at")
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other: give one of them")
    return operating.new(
        new_id(),
        act,
        filter_text,
        everything=options.get("everything", False),
        delay=None if delay is None else seconds(delay, "delay"),
        run_at=None if at is None else instant(at, "at"),
        priority=options.get("priority"),
        queue=options.get("queue"),
        by=options.get("by"),
        reason=options.get("reason"),
        attended=attended,
    )
