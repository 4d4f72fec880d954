"""One worker of a pool: a process that is greeted, given one job at a time, listened to, and ended.

It is spoken to by `wire`, which decides what a line means; here is what is done about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ..core import payload
from ..core.errors import PayloadError
from ..core.job import ErrorEntry, Job
from ..core.outcome import Cancel, ChildLost, Elsewhere, Fail, RetryAfter, Snooze, Throttle
from ..tasks.external.pool import PoolSpec, PoolTask
from ..trace import mask
from . import deaths, posix, wire
from .output import LONGEST_LINE, Budget, LineLog, Tail

STDERR_TAIL: Final = 4 * 1024
MESSAGE: Final = 2 * 1024
LAST_WORDS: Final = 0.5  # what a worker that has ended said before may still be on its way
TRACE: Final = 16 * 1024
_LEVELS: Final[dict[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class NotReady(Exception):
    """A worker that was not fit for work."""


class Worker:
    """One process of a pool."""

    def __init__(self, spec: PoolSpec, log: logging.Logger) -> None:
        self._spec = spec
        self._log = log
        self._lines = wire.Lines()
        self._stderr = Tail(STDERR_TAIL)
        self._errors = LineLog(self._say)
        self._chatter = Budget()
        self._child: posix.Child | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._pipes: list[posix.Pipe] = []
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._watch: asyncio.Task[None] | None = None
        self._ends: set[asyncio.Task[Any]] = set()
        self._current: _Current | None = None
        self._why: str | None = None  # it is to go, and why
        self._kills = deaths.oom_kills()
        self.served = 0
        self.dismissed = False

    @property
    def is_fit(self) -> bool:
        is_there = self._child is not None and not self._gone.done() and self._why is None
        return is_there and self._current is None and self._stdin is not None and not self._stdin.is_closing()

    @property
    def is_working(self) -> bool:
        """Whether it was ready, and is not on its way out."""
        return self._ready.done() and not self._gone.done() and self._why is None

    async def start(self) -> None:
        """NotReady, or OSError, if it cannot be used."""
        around = self._spec.around
        self._child = child = posix.start(
            self._spec.argv,
            environ=around.environ(tempfile.gettempdir()),
            cwd=around.cwd or os.getcwd(),
            limits=around.limits,
            stdin=subprocess.PIPE,
            user=posix.user(f"pool {self._spec.name}", around.user),
        )
        popen = child.popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._pipes.append(await posix.Pipe.open(popen.stdout, self._heard))
        self._pipes.append(await posix.Pipe.open(popen.stderr, self._complained))
        loop = asyncio.get_running_loop()
        self._pipes[0].closed.add_done_callback(lambda _: self._cut_off("stdout"))
        self._stdin, _ = await loop.connect_write_pipe(lambda: _Closing(partial(self._cut_off, "stdin")), popen.stdin)
        self._watch = asyncio.create_task(self._await_end(child))
        self._write(wire.Hello(wire.PROTOCOL, self._spec.name, self._spec.heartbeat))
        try:
            async with asyncio.timeout(self._spec.start):
                await self._ready
        except TimeoutError:
            raise NotReady(f"a worker was not ready within {self._spec.start:g} s") from None

    async def gone(self) -> str:
        """Why it is gone, once it is."""
        return await asyncio.shield(self._gone)

    async def run(self, job: Job, task: PoolTask, context: Any) -> Any:
        """Run one job to its end."""
        current = _Current(secrets.token_hex(8), job, context)  # nobody guesses it by counting
        arguments = task.stub.complete(payload.decode_trusted(job.args))
        order = wire.Run(
            id=current.id,
            job=job.id,
            task=task.task,
            args=payload.decode_trusted(payload.encode_arguments(arguments)),
            attempt=job.attempt,
            max_attempts=job.attempt if context is None else context.max_attempts,
            queue=job.queue,
            timeout=None if context is None else context.remaining(),
        )
        self._current = current  # from here on, and not before: what cannot be asked for keeps no worker busy
        self._kills = deaths.oom_kills_lately()
        self._write(order)
        beats = None if self._spec.heartbeat is None else asyncio.create_task(self._listen(current))
        try:
            outcome = await current.end
        finally:
            if beats is not None:
                beats.cancel()
            self._errors.close()
            if (told := self._chatter.report()) is not None:
                self._say(told)
            self.served += 1
            self._current = None
        return _settle(outcome, current)

    def cancel(self, grace: float) -> None:
        """Ask it to let go of its run; who does not answer is ended."""
        if self._current is not None:
            self._current.cancelled = True
            self._write(wire.Cancel(self._current.id))
            self._later(self._insist(self._current, grace))

    def dismiss(self, grace: float) -> None:
        """There is nothing more for it to do: its input ends, and soon so does it."""
        if self._why is None:
            self._why, self.dismissed = "it was dismissed", True
            if self._stdin is not None:
                self._stdin.close()
            self._later(self._see_off(grace))

    def kill(self) -> None:
        """At once, without waiting for anybody."""
        if self._child is not None and not self._child.ended:
            self._child.kill()
        for pipe in self._pipes:
            pipe.close()
        self._close_the_rest()
        if self._stdin is not None and (not self._stdin.is_closing() or self._stdin.get_write_buffer_size()):
            self._stdin.abort()
        if not self._gone.done():
            self._gone.set_result(self._why or "it was killed")

    def _close_the_rest(self) -> None:
        """What its start was given up before."""
        if self._child is None:
            return
        popen = self._child.popen
        ours = [*(popen.stdout, popen.stderr)[len(self._pipes) :], *([popen.stdin] if self._stdin is None else [])]
        for stream in ours:
            if stream is not None:
                stream.close()

    # What it says -----------------------------------------------------------------------------------------------------

    def _heard(self, data: bytes) -> None:
        if self._why is not None and not self.dismissed:
            return  # whatever it says now, it is on its way out
        if self._current is not None:
            self._current.heard_at = asyncio.get_running_loop().time()
        try:
            for line in self._lines.feed(data):
                self._take_in(wire.decode(line))
        except wire.Garbage as error:
            self._condemn(f"a worker broke the protocol: {error}")

    def _take_in(self, report: wire.Report) -> None:
        current = self._current
        match report:
            case wire.Ready():
                if self._ready.done():
                    raise wire.Garbage("it said ready twice")
                if report.protocol != wire.PROTOCOL:
                    raise wire.Garbage(f"it speaks protocol {report.protocol}, and this is {wire.PROTOCOL}")
                self._ready.set_result(None)
            case _ if not self._ready.done():
                raise wire.Garbage("it must say ready first")
            case wire.Outcome():
                if current is None or report.id != current.id:
                    raise wire.Garbage(f"an outcome with the id {report.id[:40]!r}, which it was not asked for")
                if current.end.done():
                    raise wire.Garbage("two outcomes of one run")
                current.end.set_result(report)
            case wire.Log():
                is_old = current is not None and report.id not in (None, current.id)  # of a run that is over
                if self._chatter.take() and not is_old:
                    self._say(report.message[:LONGEST_LINE], report.level)
            case wire.Progress() if current is not None and report.id == current.id:
                current.progress(report)
            case _:
                pass  # a heartbeat; or progress of a run that is over

    def _complained(self, data: bytes) -> None:
        self._stderr.feed(data)
        self._errors.feed(data)

    def _say(self, line: str, level: str = "info") -> None:
        """In the log of the job that it has in hand, or else in the pool's own."""
        if self._current is not None and self._current.context is not None:
            self._current.context.keep_line(_LEVELS[level], mask(_storable(line)))
        else:
            self._log.log(_LEVELS[level], "%s", mask(line))

    # How it ends ------------------------------------------------------------------------------------------------------

    def _condemn(self, why: str, error: Exception | None = None) -> None:
        """It is not to be trusted any more: killed, and what it ran has failed."""
        if self._why is not None and not self.dismissed:
            return
        self._why = why
        self.dismissed = False
        if self._current is not None and not self._current.end.done():
            self._current.end.set_exception(error or self._failure(self._current, why))
        if not self._ready.done():
            self._ready.set_exception(NotReady(why))
            self._ready.exception()  # nobody may be waiting for it any more
        if self._child is not None:
            self._child.signal(signal.SIGKILL)

    def _failure(self, current: _Current, why: str) -> Elsewhere:
        return Elsewhere(_entry(current.job, "ProtocolError", why, self._stderr.text()))

    async def _await_end(self, child: posix.Child) -> None:
        code = await child.exit()
        await asyncio.wait([pipe.closed for pipe in self._pipes], timeout=LAST_WORDS)
        limits = self._spec.around.limits
        cause = deaths.cause(
            code, memory=limits.get("memory"), cpu=limits.get("cpu"), starved=deaths.oom_kills() > self._kills
        )
        last = self._stderr.text().strip().rpartition("\n")[2].strip()[:500]
        why = self._why or f"a worker ended: {cause}" + (f": {last}" if last else "")
        if self._current is not None and not self._current.end.done():
            if self._current.cancelled:
                self._current.end.cancel()
            else:
                self._current.end.set_exception(cause)
        if not self._ready.done():
            self._ready.set_exception(NotReady(why))
            self._ready.exception()
        if not self._gone.done():
            self._gone.set_result(why)

    def _cut_off(self, stream: str) -> None:
        """Closed, as it is when it has ended, too. Who stays all the same can never be asked or answer again."""
        loop = asyncio.get_running_loop()
        loop.call_later(LAST_WORDS, lambda: self._must_end(f"a worker closed its {stream}"))

    def _must_end(self, why: str) -> None:
        if self._child is not None and not self._child.ended and self._why is None:
            self._condemn(why)

    async def _listen(self, current: _Current) -> None:
        """Nobody is believed to work who has said nothing for so long."""
        limit = self._spec.heartbeat or 0.0
        loop = asyncio.get_running_loop()
        while (left := current.heard_at + limit - loop.time()) > 0:
            await asyncio.wait([current.end], timeout=left)
        why = f"its worker said nothing for {limit:g} s"
        self._condemn(f"a worker said nothing for {limit:g} s", ChildLost(why, "limit"))

    async def _insist(self, current: _Current, grace: float) -> None:
        await asyncio.wait([current.end], timeout=grace / 2)
        if not current.end.done() and self._child is not None:
            self._why = self._why or "a worker did not heed a cancel"
            await self._child.end(grace / 4)

    async def _see_off(self, grace: float) -> None:
        if self._child is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace / 2):
                    await self._child.exit()
            await self._child.end(grace / 2)

    def _write(self, order: wire.Order) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(wire.encode(order))

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)


class _Closing(asyncio.Protocol):
    """The end of a pipe that we write to."""

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()


class _Current:
    """The run that a worker has in hand."""

    def __init__(self, id: str, job: Job, context: Any) -> None:
        loop = asyncio.get_running_loop()
        self.id = id
        self.job = job
        self.context = context
        self.heard_at = loop.time()
        self.cancelled = False  # by us
        self.end: asyncio.Future[wire.Outcome] = loop.create_future()

    def progress(self, report: wire.Progress) -> None:
        if self.context is not None:
            try:
                self.context.progress_sync(report.done, report.total, report.note, report.data)
            except (ValueError, PayloadError) as error:
                raise wire.Garbage(f"progress: {error}") from None


def _settle(outcome: wire.Outcome, current: _Current) -> Any:
    """What the worker said, as a task would have said it."""
    error = outcome.told
    words = mask(f"{error.type}: {error.message}" if error.type and error.message else error.message or error.type)
    match outcome.status:
        case "succeeded":
            return outcome.result
        case "failed":
            entry = _entry(current.job, error.type or "Error", error.message, error.trace)
            raise Elsewhere(entry, (error.type,) if error.type else ())
        case "retry":
            raise RetryAfter(outcome.after or 0.0, words[:MESSAGE])
        case "snooze":
            raise Snooze(outcome.after or 0.0)
        case "throttle":
            raise Throttle(outcome.after)
        case "fail":
            raise Fail(words[:MESSAGE])
        case "cancelled":
            # After our own cancel the reason for it says what it means: a timeout, a shutdown.
            raise asyncio.CancelledError if current.cancelled else Cancel(words[:MESSAGE])


def _entry(job: Job, kind: str, message: str, trace: str) -> ErrorEntry:
    return ErrorEntry(
        attempt=job.attempt,
        kind="error",
        type=_storable(kind)[:200],
        message=mask(_storable(message)[:MESSAGE]),
        trace=mask(_storable(trace)[-TRACE:]),
        pod=job.pod,
        started_at=job.started_at,
    )


def _storable(text: str) -> str:
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
