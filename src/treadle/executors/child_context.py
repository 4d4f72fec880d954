"""A task's context inside a child process: what it asks goes over the pipe, and the pod's own parts answer.

A Context speaks to a Door and a Notebook; here both are at the other end. The child encodes, asks, and decodes; it
decides nothing. `_sync` twins wait for the answer in their own thread. A transaction of the task's own is the one thing
that stays here: its connection is this process' own, and so is the storage that it is written through.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import Raw

from ..context.context import Call, CancelAnswer, EnqueueOutcome, Handle
from ..context.transaction import Desk
from ..core import errors
from ..core.answer import Answer
from ..core.duration import Duration
from ..core.job import Job, NewJob
from ..core.progress import Progress, Reported
from . import pipe

if TYPE_CHECKING:
    from ..core.view import ExplanationView, JobView

R = TypeVar("R")
T = TypeVar("T")

Request = Callable[[str, Any], Future[Raw]]
"""(verb, value that JSON has words for) → the answer's JSON."""
Note = Callable[[str, Any], None]
"""The same, without an answer."""


class ChildDoor:
    """Implements `context.Door`."""

    is_open = True

    def __init__(self, request: Request, app: Any) -> None:
        self._request = request
        self._app = app
        self._client = app.client

    def prepare(self, call: Call[Any]) -> NewJob:
        prepared: NewJob = self._client.prepare(call)  # the same code chooses the same queue
        return prepared

    @property
    def desk(self) -> Desk:
        """Of this process' own storage, which is opened when it is first needed."""
        if not self._app.is_open:
            in_thread(self._app.open_sync)
        found: Desk = self._client.desk
        return found

    async def insert(self, job: NewJob) -> tuple[str, EnqueueOutcome]:
        return await self._ask("insert", [job], tuple[str, EnqueueOutcome])

    async def enqueue(self, call: Call[R]) -> Handle[R]:
        return _handle(await self.insert(self._plain(call)), self, call)

    def enqueue_sync(self, call: Call[R]) -> Handle[R]:
        return _handle(self.run_sync(self.insert(self._plain(call))), self, call)

    async def status(self, job_id: str) -> JobView:
        from ..core.view import JobView

        return await self._ask("status", [job_id], JobView)

    async def explain(self, job_id: str) -> ExplanationView:
        from ..core.view import ExplanationView

        return await self._ask("explain", [job_id], ExplanationView)

    async def wait_for_end(self, job_id: str, timeout: Duration | None, waiter: Job | None = None) -> Job:
        return await self._ask("wait_for_end", [job_id, timeout], Job)

    async def cancel(self, job_id: str) -> CancelAnswer:
        answer: CancelAnswer = await self._ask("cancel", [job_id], cast("type[Any]", CancelAnswer))
        return answer

    async def take_tokens(self, scope: str, n: int, wait: float) -> float | None:
        return await self._ask("take_tokens", [scope, n, wait], cast("type[float | None]", float | None))

    async def drain_limit(self, scope: str) -> None:
        await self._ask("drain_limit", [scope], type(None))

    async def open_answer(self, id: str, job_id: str, claim: str, timeout: float, keep: str | None) -> None:
        await self._ask("open_answer", [id, job_id, claim, timeout, keep], type(None))

    async def wait_for_answer(self, id: str) -> Answer:
        return await self._ask("wait_for_answer", [id], Answer)

    async def read_answer(self, id: str) -> Answer:
        return await self._ask("read_answer", [id], Answer)

    def run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        return run_apart(work)

    async def _ask(self, verb: str, value: Any, kind: type[T]) -> T:
        return decoded(await asyncio.wrap_future(self._request(verb, value)), kind)

    def _plain(self, call: Call[Any]) -> NewJob:
        if call.options.within is not None:
            raise ValueError("a transaction of the child process is not the worker's: app.enqueue(…) takes within=")
        return self.prepare(call)


def _handle(inserted: tuple[str, EnqueueOutcome], door: ChildDoor, call: Call[R]) -> Handle[R]:
    return Handle(*inserted, door, call.decode_result)


class ChildNotebook:
    """Implements `reporting.Notebook`. The job is always the one that runs here: the pod knows it."""

    def __init__(self, request: Request, note: Note, least: int) -> None:
        self.least = least
        self._request = request
        self._note = note

    def progress(self, job: Job, progress: Progress) -> None:
        self._note("progress", progress)

    def line(self, job: Job, level: int, text: str) -> None:
        self._note("line", (level, pipe.clean(text)))

    async def flush(self, job: Job) -> None:
        await self._ask("flush", None, type(None))

    async def last_progress(self, job: Job) -> Reported | None:
        return await self._ask("last_progress", None, cast("type[Reported | None]", Reported | None))

    async def save(self, job: Job, checkpoint: str) -> None:
        await self._ask("save", checkpoint, type(None))

    async def saved(self, job: Job) -> str | None:
        return await self._ask("saved", None, cast("type[str | None]", str | None))

    async def _ask(self, verb: str, value: Any, kind: type[T]) -> T:
        return decoded(await asyncio.wrap_future(self._request(verb, value)), kind)


def encoded(value: Any) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise TypeError(f"what is asked from a child process must be JSON: {error}") from None


def decoded(value: Raw, kind: type[T]) -> T:
    return msgspec.json.decode(value, type=kind)


def run_apart(work: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine, waited for in this thread, whether or not a loop runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    return in_thread(lambda: _run(work))


def in_thread(work: Callable[[], R]) -> R:
    """What a function returns in a thread of its own, which the caller waits for."""
    found: Future[R] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="treadle-sync", daemon=True).start()
    return found.result()


def _run(work: Coroutine[Any, Any, R]) -> R:
    loop = asyncio.new_event_loop()  # not set as the thread's: the task's own `asyncio.run` knows nothing of it
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def as_error(name: str, words: str) -> Exception:
    """An error that the pod's side raised, again. What nobody here knows is told by a RuntimeError."""
    kind = getattr(errors, name, None) or _BUILT_IN.get(name)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(words)
        except TypeError:  # one of those that take more than a message
            pass
    return RuntimeError(f"{name}: {words}")


_BUILT_IN: Final[dict[str, type[Exception]]] = {
    each.__name__: each for each in (ValueError, TypeError, KeyError, RuntimeError, TimeoutError, LookupError)
}
