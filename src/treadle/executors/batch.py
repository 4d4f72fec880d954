"""Batch tasks: jobs are gathered until there are enough, or the first has waited long enough; then one call does all.

Every job has its own run, its slot and its deadline; only the call is shared. So a batch is never larger than the slots
that its queue has in this worker.

* While it is being gathered, a job that is asked to stop leaves, and the others never hear of it.
* Once the call is under way, one job alone cannot be stopped without the others: it sees so in its context, and is
  given up if the call does not return in time. If all are asked to stop, the call is cancelled (a thread: asked).
* What the call returns is shared out: None for all, or a list with a member for each. A member that is an exception is
  that job's alone, a signal among them. What the call raises, all of them get.
* When the worker stops, what was not begun is given back, uncharged.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from ..core.outcome import Release
from ..ports import Call, Executor
from ..tasks.batch import ITEM, BatchContext
from ..tasks.task import BatchTask, Registry, Task

log = logging.getLogger("treadle.batch")


class _Member:
    """One job of a batch."""

    __slots__ = ("answer", "asked", "call")

    def __init__(self, call: Call, answer: asyncio.Future[tuple[Any, BaseException | None]]) -> None:
        self.call = call
        self.answer = answer
        self.asked = False  # to stop

    @property
    def is_wanted(self) -> bool:
        return not (self.asked or self.call.context.cancelled)

    def tell(self, value: Any, error: BaseException | None = None) -> None:
        if not self.answer.done():
            self.answer.set_result((value, error))


class _Batch:
    __slots__ = ("context", "members", "timer", "trace", "work")

    def __init__(self) -> None:
        self.context = contextvars.copy_context()  # the first job's: to it belongs what the call logs
        self.members: list[_Member] = []
        self.timer: asyncio.TimerHandle | None = None
        self.work: asyncio.Task[None] | None = None  # the call, once it has begun
        self.trace: TracebackType | None = None  # of what it raised


class BatchExecutor:
    """Runs the jobs of one batch task. `inner` runs the calls, on the loop or in a thread."""

    asks = True
    # A run that is cancelled leaves the batch, or is waited for until it is given up: see `_answer`.
    cancels = True

    def __init__(self, task: BatchTask[Any, Any], inner: Executor, size: int | None = None) -> None:
        self.name = task.executor
        self.size = task.batch if size is None else size
        self._task = task
        self._inner = inner
        self._gathering: _Batch | None = None
        self._works: set[asyncio.Task[None]] = set()

    def places(self) -> int | None:
        free = self._inner.places()
        if free is None or free > 0:
            return None
        # No call could begin now. What gathers already will have to wait for its thread; more would wait in vain.
        return 0 if self._gathering is None else self.size - len(self._gathering.members)

    async def start(self) -> None:
        pass

    async def run(self, call: Call) -> Any:
        loop = asyncio.get_running_loop()
        batch = self._gathering
        if batch is None:
            batch = self._gathering = _Batch()
            batch.timer = loop.call_later(self._task.within, self._begin, batch)
        member = _Member(call, loop.create_future())
        batch.members.append(member)
        if len(batch.members) >= self.size:
            self._begin(batch)
        value, error = await self._answer(batch, member)
        if error is not None:
            # One exception for all: each run gets it as the call has raised it.
            raise error.with_traceback(batch.trace) if batch.trace is not None else error
        return value

    async def close(self) -> None:
        self.let_go()

    def begin(self) -> None:
        if self._gathering is not None:
            self._begin(self._gathering)

    def let_go(self) -> None:
        batch, self._gathering = self._gathering, None
        if batch is None:
            return
        _stop_timer(batch)
        for member in batch.members:
            member.tell(None, Release())

    async def _answer(self, batch: _Batch, member: _Member) -> tuple[Any, BaseException | None]:
        while True:
            try:
                return await asyncio.shield(member.answer)
            except asyncio.CancelledError:
                member.asked = True
                if batch.work is None:
                    self._leave(batch, member)
                    raise
                if self._inner.cancels and all(each.asked for each in batch.members):
                    batch.work.cancel()

    def _leave(self, batch: _Batch, member: _Member) -> None:
        if member in batch.members:
            batch.members.remove(member)
        if not batch.members and self._gathering is batch:
            _stop_timer(batch)
            self._gathering = None

    def _begin(self, batch: _Batch) -> None:
        """Call it: there are enough, or the first has waited long enough."""
        if self._gathering is batch:
            self._gathering = None
        _stop_timer(batch)
        for member in batch.members:
            if not member.is_wanted:
                member.tell(None, asyncio.CancelledError())  # its run knows why
        batch.members = [member for member in batch.members if member.is_wanted]
        if batch.members:
            batch.work = asyncio.get_running_loop().create_task(self._call(batch), context=batch.context)
            self._works.add(batch.work)
            batch.work.add_done_callback(self._works.discard)

    async def _call(self, batch: _Batch) -> None:
        members = tuple(batch.members)
        items = [member.call.kwargs[ITEM] for member in members]
        contexts = BatchContext(tuple(member.call.context for member in members))
        args = (contexts, items) if self._task.takes_context else (items,)
        try:
            value = await self._inner.run(Call(self._task.function, args, {}))
            found = _shared_out(value, len(members), self._task.name)
        except BaseException as error:  # whatever it is, it is these jobs' end
            batch.trace = error.__traceback__
            found = [error] * len(members)
        for member, each in zip(members, found, strict=True):
            if isinstance(each, BaseException):
                member.tell(None, each)
            else:
                member.tell(each)


def _shared_out(value: Any, count: int, task: str) -> Sequence[Any]:
    if value is None:
        return [None] * count
    if not isinstance(value, list | tuple):
        raise TypeError(f"{task} returned a {type(value).__name__}: return None, or a list with a result for each job")
    found = cast("Sequence[Any]", value)
    if len(found) != count:
        raise ValueError(f"{task} returned {len(found)} results for {count} jobs: return None, or one for each")
    return found


def _stop_timer(batch: _Batch) -> None:
    if batch.timer is not None:
        batch.timer.cancel()
        batch.timer = None


def batches_of(
    registry: Registry,
    inner: Mapping[str, Executor],
    queues: Mapping[str, int],
    *,
    pod_slots: int | None,
    queue_of: Callable[[Task[..., Any]], str],
) -> dict[str, Executor]:
    """An executor for each batch task, by its name. `queues` are those that the pod serves, with their slots."""
    found: dict[str, Executor] = {}
    most = max(queues.values(), default=1)
    for batch in _batch_tasks(registry.tasks.values()):
        queue = queue_of(batch)
        slots = max(1, min(queues.get(queue, most), pod_slots or most))
        if slots < batch.batch and queue in queues:
            log.warning(
                "task %s gathers %d jobs, and queue %s has %d slots here: its batches are of %d at most; give it more "
                "(-q %s:%d)",
                *(batch.name, batch.batch, queue, slots, slots, queue, batch.batch),
            )
        found[batch.executor] = BatchExecutor(batch, inner[batch.called_in], min(batch.batch, slots))
    return found


def _batch_tasks(tasks: Iterable[Any]) -> list[BatchTask[Any, Any]]:
    return [task for task in tasks if isinstance(task, BatchTask)]
