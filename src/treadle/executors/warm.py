"""One warm child process, as the pod sees it: started, spoken to, and ended."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from ..context import logs as joblog
from ..context.context import Context
from ..core.errors import ConfigError
from ..core.job import NewJob
from ..core.outcome import Brought, ChildLost, Elsewhere, NotBegun, Succeeded
from ..core.progress import Progress
from ..ports import Call
from . import deaths, pipe
from .origin import Origin
from .output import LineLog
from .posix import Child, Pipe

log = logging.getLogger("treadle.child")

START_PATIENCE: Final = 60.0  # an app may load a lot
LAST_WORDS: Final = 1.0  # what a dead child has said may still be on its way
TICK: Final = 0.2
_DOOR: Final = ("status", "explain", "wait_for_end", "cancel", "take_tokens", "drain_limit")
_OF_THE_DOOR: Final = frozenset({*_DOOR, "open_answer", "wait_for_answer", "read_answer"})
_CUT_OFF: Final = "its child process closed its connection to the worker"


class WarmChild:
    """Runs one call at a time. `retired`: it must not get another."""

    def __init__(self, process: Child, connection: socket.socket, lifeline: int) -> None:
        self.process = process
        self.calls = 0
        self.rss = 0
        self.retired = False
        self.idle: asyncio.TimerHandle | None = None  # when it has waited long enough
        self._connection = connection
        self._lifeline = lifeline
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._answer: asyncio.Future[Brought] | None = None
        self._context: Context[Any] | None = None
        self._around: contextvars.Context | None = None  # of the run: who logs in it, logs for its job
        self._asked: set[asyncio.Task[None]] = set()
        self._fault: str | None = None
        self._transport: asyncio.Transport | None = None
        self._pipes: list[Pipe] = []
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._starved = 0

    @property
    def is_usable(self) -> bool:
        return not (self.retired or self.process.ended or self._closed.done())

    # Start and end ---------------------------------------------------------------------------------------------------

    @classmethod
    async def start(cls, origin: Origin, tasks: Sequence[str]) -> WarmChild:
        """Start one, and wait until it is ready. ConfigError if it cannot be."""
        child = cls(*_spawn())
        try:
            async with asyncio.timeout(START_PATIENCE):
                await child._open(origin, tasks)
        except BaseException as error:  # given up just when it became ready, too: nobody else knows of it
            await child.gone()
            if isinstance(error, TimeoutError):
                words = f"a child process has not imported {origin.app} within {START_PATIENCE:g} s"
                raise ConfigError(words) from None
            raise
        return child

    async def _open(self, origin: Origin, tasks: Sequence[str]) -> None:
        popen = self.process.popen
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._pipes.append(await Pipe.open(popen.stdout, LineLog(partial(self._said, logging.INFO)).feed))
        self._pipes.append(await Pipe.open(popen.stderr, LineLog(partial(self._said, logging.WARNING)).feed))
        self._transport, _ = await self._loop.create_connection(lambda: _Socket(self), sock=self._connection)
        self._send(pipe.Begin(origin, tuple(tasks)))
        ended = asyncio.ensure_future(self.process.exit())
        try:
            await asyncio.wait((self._ready, ended), return_when=asyncio.FIRST_COMPLETED)
            if not self._ready.done():
                await asyncio.wait((self._ready,), timeout=LAST_WORDS)
            if not self._ready.done():
                raise ConfigError(f"a child process ended before it had imported {origin.app} (see its log lines)")
            self._ready.result()
        finally:
            ended.cancel()

    async def end(self, grace: float) -> None:
        """Let it leave by itself, since it does nothing; in the end, kill it."""
        self.retired = True
        self._let_go()
        try:
            async with asyncio.timeout(grace):
                await self.process.exit()
        except TimeoutError:
            pass
        finally:
            await self.gone()

    async def gone(self) -> None:
        """Kill it, and let the loop close what was its."""
        self.kill()
        for _ in range(3):
            await asyncio.sleep(0)

    def kill(self) -> None:
        self.retired = True
        self.process.kill()
        self._let_go()
        for each in self._pipes:
            each.close()
        for stream in (self.process.popen.stdout, self.process.popen.stderr)[len(self._pipes) :]:
            if stream is not None:
                stream.close()

    def _let_go(self) -> None:
        """Close our ends. The lifeline too, but only when it is dead or about to leave: it kills."""
        if self.idle is not None:
            self.idle.cancel()
        if self._transport is not None:
            self._transport.close()
        else:
            self._connection.close()
        if self._lifeline >= 0 and self.process.ended:
            os.close(self._lifeline)
            self._lifeline = -1

    # A call ----------------------------------------------------------------------------------------------------------

    async def run(self, call: Call, *, memory: int | None, cpu: float | None, grace: float) -> Brought:
        assert call.job is not None
        assert self._answer is None
        context: Context[Any] = call.context
        self.calls += 1
        self._starved = deaths.oom_kills_lately()  # what came while it was idle is no cause of its end
        self._context, self._around = context, contextvars.copy_context()
        self._answer = answer = self._loop.create_future()
        self._send(
            pipe.Start(
                job=msgspec.structs.replace(call.job, deadline=context.job.deadline),
                slot=context.slot,
                max_attempts=context.max_attempts,
                left=context.remaining(),
                least=logging.CRITICAL + 1 if context.notebook is None else context.notebook.least,
                levels={name: logging.getLogger(name).getEffectiveLevel() for name in ("", "treadle")},
                memory=memory,
                cpu=cpu,
            )
        )
        ticking = self._loop.call_later(TICK, self._tick)
        ended = asyncio.ensure_future(self.process.exit())
        try:
            await asyncio.wait((answer, ended), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._stop(answer, ended, grace)
            if not answer.done():
                raise
        else:
            await self._last_words(answer)
        finally:
            ticking.cancel()
            ended.cancel()
            self._answer = self._context = None
            for task in self._asked:
                task.cancel()
        if answer.done():
            return cast("Brought", answer.result())
        code = await self.process.exit()
        if self._fault is not None or code == pipe.CUT_OFF:
            raise ChildLost(self._fault or _CUT_OFF)
        raise deaths.cause(code, memory=memory, cpu=cpu, starved=deaths.oom_kills() > self._starved)

    async def _stop(self, answer: asyncio.Future[Brought], ended: asyncio.Future[int], grace: float) -> None:
        """TERM to its group, time to obey, KILL. It is over when the task has ended, by whatever means."""
        self.retired = True
        self.process.signal(signal.SIGTERM)
        try:
            await asyncio.wait((answer, ended), timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not answer.done() and not ended.done():
                self.process.signal(signal.SIGKILL)
        await self._last_words(answer)

    async def _last_words(self, answer: asyncio.Future[Brought]) -> None:
        """It has ended, or answered. What it said before it ended counts: so wait until all of that is read."""
        if not answer.done():
            await asyncio.wait((answer, self._closed), timeout=LAST_WORDS, return_when=asyncio.FIRST_COMPLETED)

    def _tick(self) -> None:
        if self._context is not None:
            if self._context.stopping:
                self._send(pipe.Stopping())
            else:
                self._loop.call_later(TICK, self._tick)

    # What it says ----------------------------------------------------------------------------------------------------

    def heard(self, message: pipe.FromChild) -> None:
        match message:
            case pipe.Logged():
                try:
                    (self._around or contextvars.copy_context()).run(_log_again, message)
                except Exception:  # a filter of the app's: no reason to lose the job
                    log.exception("a record of child %d", self.process.pid)
            case pipe.Ask(0):
                self._note(message)
            case pipe.Ask():
                task = self._loop.create_task(self._answer_to(message))
                self._asked.add(task)
                task.add_done_callback(self._asked.discard)
            case pipe.Done(result, warning, left):
                self._take_over(left)
                self._settle(Brought(result, warning))
            case pipe.Threw(error, types, thrown, left):
                self._take_over(left)
                self._settle(Elsewhere(error, types, None if thrown is None else pipe.signal_of(thrown)))
            case pipe.Unknown(task):
                self.retired = True
                self._settle(NotBegun(f"a child process that was started before {task} was declared"))
            case pipe.Ready():
                if not self._ready.done():
                    self._ready.set_result(None)
            case pipe.Broken(why):
                self.retired = True
                if not self._ready.done():
                    self._ready.set_exception(ConfigError(why))

    def _take_over(self, left: pipe.Left) -> None:
        self.rss = left.rss
        if self._context is not None:
            self._context.adopt(left.follow_ups, left.meta, left.settled)

    def _settle(self, outcome: Brought | Elsewhere | NotBegun) -> None:
        answer = self._answer
        if answer is None or answer.done():
            return
        if isinstance(outcome, Brought):
            answer.set_result(outcome)
        else:
            self.retired = self.retired or (isinstance(outcome, Elsewhere) and outcome.error.kind == "limit")
            answer.set_exception(outcome)

    def garbled(self, error: Exception) -> None:
        self._fault = f"its child process wrote into the worker's own connection: {error}"
        self.process.signal(signal.SIGKILL)

    def hung_up(self) -> None:
        """The socket is closed: at its end, or because the task closed what is not its own."""
        if not self._closed.done():
            self._closed.set_result(None)
        self._loop.call_later(LAST_WORDS / 2, self._must_end)

    def _must_end(self) -> None:
        if not self.process.ended and self._answer is not None:
            self._fault = self._fault or _CUT_OFF
            self.process.signal(signal.SIGKILL)

    def _said(self, level: int, line: str) -> None:
        (self._around or contextvars.copy_context()).run(log.log, level, "child %d: %s", self.process.pid, line)

    def _asker(self, ask: pipe.Ask) -> Context[Any] | None:
        """The context of the run that asks, if that is still the one which runs."""
        context = self._context
        return context if context is not None and context.job.token == ask.token else None

    def _note(self, ask: pipe.Ask) -> None:
        """What the task says and waits for no answer to: in its place among what else it says."""
        context = self._asker(ask)
        if context is None:
            return
        if ask.verb == "commits":
            context.commits(msgspec.json.decode(ask.value, type=bool))
        elif ask.verb == "settled":  # whatever becomes of the child now, the job has succeeded
            context.settled(msgspec.json.decode(ask.value, type=Succeeded))
        elif (notebook := context.notebook) is None:
            return
        elif ask.verb == "progress":
            notebook.progress(context.job, msgspec.json.decode(ask.value, type=Progress))
        elif ask.verb == "line":
            notebook.line(context.job, *msgspec.json.decode(ask.value, type=tuple[int, str]))

    async def _answer_to(self, ask: pipe.Ask) -> None:
        try:
            context = self._asker(ask)
            if context is None:
                raise RuntimeError("the run has ended")
            value = await _do(context, ask)
            self._send(pipe.Answer(ask.id, Raw(msgspec.json.encode(value))))
        except Exception as error:
            self._send(pipe.Answer(ask.id, error=(type(error).__name__, str(error)[:4096])))

    def _send(self, message: pipe.ToChild) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pipe.encode(message))


async def _do(context: Context[Any], ask: pipe.Ask) -> Any:
    """What a task in a child asks of its context: one of the verbs that are known, and nothing else."""
    door, notebook, job = context.door, context.notebook, context.job
    value: Any = msgspec.json.decode(ask.value)
    match ask.verb:
        case "insert":
            return await door.insert(msgspec.json.decode(ask.value, type=tuple[NewJob])[0])
        case "wait_for_end":
            return await door.wait_for_end(value[0], value[1], job)
        case verb if verb in _OF_THE_DOOR:
            return await getattr(door, verb)(*value)
        case "flush" | "last_progress" | "saved" as verb if notebook is not None:
            return await getattr(notebook, verb)(job)
        case "save" if notebook is not None:
            return await notebook.save(job, value)
        case "flush" | "last_progress" | "saved" | "save":
            return None
        case _:
            raise RuntimeError(f"a child process has no {ask.verb}")


def _log_again(said: pipe.Logged) -> None:
    logger = logging.getLogger(said.logger)
    if logger.isEnabledFor(said.level):
        file, line, function = said.place
        with joblog.keeping(said.kept):
            record = logger.makeRecord(said.logger, said.level, file, line, said.text, (), None, function)
        vars(record).update(said.extra)  # not as `extra`: the app's own factory may have set the same here
        record.exc_text = said.trace
        logger.handle(record)


class _Socket(asyncio.Protocol):
    def __init__(self, child: WarmChild) -> None:
        self._child = child
        self._frames = pipe.Frames()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._child.heard(pipe.from_child.decode(frame))
        except (ValueError, msgspec.MsgspecError) as error:
            self._child.garbled(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._child.hung_up()


def _spawn() -> tuple[Child, socket.socket, int]:
    """A process that leads a session of its own and dies with us: its socket, and the lifeline that kills it."""
    if not sys.executable:
        raise ConfigError("child processes are started by Python, and this process does not know where its own is")
    ours, theirs = socket.socketpair()
    far, lifeline = os.pipe()
    try:
        ours.setblocking(False)
        popen = subprocess.Popen(  # noqa: S603 - our own interpreter, our own module, numbers
            [sys.executable, "-P", "-m", "treadle.executors.child", str(theirs.fileno()), str(far), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(), far),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(lifeline)
        raise
    finally:
        theirs.close()
        os.close(far)
    return Child(popen), ours, lifeline
