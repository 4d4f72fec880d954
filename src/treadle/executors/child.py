"""The child process of a pod: imports the app once, then runs one call at a time, as it is told over its socket.

Started as `python -m treadle.executors.child SOCKET LIFELINE PARENT`, never by a fork: a pod has threads, and a fork of
it would have their locks without them.

Threads
-------
The main thread runs the calls: plain functions directly, coroutines on a loop that is kept from call to call (the app's
lifespan lives on it). A second thread reads the socket, so that answers arrive whatever the main thread does.

Its end
-------
* The pod dies: the kernel kills the whole group, this process and what it has started, whatever they are doing (the
  lifeline: a pipe whose other end only the pod has, set to send SIGKILL when that closes). Should a fork of the pod
  keep that end open, the parent-death signal ends the group; it is SIGTERM, since a SIGKILL to this process alone would
  leave the others behind: it comes when the pod's first thread dies, and the pipe closes with its last.
* SIGTERM: the call is to end. A coroutine is cancelled, in a plain function `Terminated` is raised; `finally` blocks
  run. Then this process leaves: code that was broken off anywhere is not to be trusted with another call.
* The pod closes the socket between calls: the lifespan is left, and the process ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import logging
import os
import queue
import random
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Raw

from .. import middleware
from ..context import logs as joblog
from ..context.context import Context
from ..core import payload
from ..core.job import ErrorKind, Job, State
from ..core.size import words as size_words
from ..tasks.follow_ups import FollowUps
from ..tasks.task import Task
from ..trace import entry_of
from . import launch, pipe
from .child_context import ChildDoor, ChildNotebook, as_error, encoded
from .origin import load
from .usage import address_space, rss

_F_SETSIG: Final = 10  # Linux; Python has no name for it before 3.13
_CHUNK: Final = 256 << 10
_LOG_TEXT: Final = 16 << 10
_LAST_WAIT: Final = 3.0
_LOOK_AROUND: Final = 1.0
_MEMORY_FLOOR: Final = 8 << 20


class Terminated(BaseException):
    """The call is to end: it was cancelled, its deadline has passed, or the worker stops."""


class Link:
    """The socket to the pod: frames out from any thread, frames in by a thread of its own."""

    def __init__(self, connection: socket.socket, parent: int) -> None:
        self.inbox: queue.SimpleQueue[pipe.ToChild | None] = queue.SimpleQueue()
        self.stopping = False
        self.calling = False
        self.busy = 0  # the main thread is inside `send`, where it must not be broken off
        self.due: BaseException | None = None  # what is raised there afterwards
        self._connection = connection
        self._poll = select.poll()  # not `select`, which counts descriptors to 1024 only
        self._poll.register(connection, select.POLLIN)
        self.parent = parent
        self._lock = threading.Lock()
        self._held = threading.local()  # threads may fork at once
        self._asked: dict[int, Future[Raw]] = {}
        self._count = 0

    def watch_forks(self) -> None:
        """A task may fork (as `multiprocessing` does), and end what it forked by SIGTERM, even before that has come to
        itself. So the signal is held until it has: Python forgets one that comes earlier, and who waits for its end
        waits for ever."""
        os.register_at_fork(before=self._hold_term, after_in_parent=self._let_term, after_in_child=self._forked)

    def _hold_term(self) -> None:
        self._held.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _let_term(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held.mask)

    def _forked(self) -> None:
        """The socket and what SIGTERM means are ours, not its own. What it logs goes to its stderr."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._let_term()
        root = logging.getLogger()
        root.handlers = [each for each in root.handlers if not isinstance(each, LogToPod)]
        self._connection.close()

    def send(self, message: pipe.FromChild) -> None:
        data = pipe.encode(message)
        is_main = threading.current_thread() is threading.main_thread()
        self.busy += is_main
        try:
            with self._lock:
                self._connection.sendall(data)
        except OSError:
            os._exit(pipe.CUT_OFF)  # the pod is gone, or its socket
        finally:
            self.busy -= is_main
        if is_main and not self.busy and self.due is not None:
            error, self.due = self.due, None
            raise error

    def ask(self, verb: str, value: Any, *, token: str | None) -> Future[Raw]:
        body = encoded(value)
        answer: Future[Raw] = Future()
        with self._lock:
            self._count += 1
            number = self._count
            self._asked[number] = answer
        self.send(pipe.Ask(number, verb, body, token))
        return answer

    def note(self, verb: str, value: Any, *, token: str | None) -> None:
        self.send(pipe.Ask(0, verb, encoded(value), token))

    def read(self) -> None:
        """In the reader's thread, until the pod closes the socket."""
        frames = pipe.Frames()
        while data := self._receive():
            for frame in frames.feed(data):
                self._take(pipe.to_child.decode(frame))
        _die_with(self.parent)
        if self.calling:  # nobody is left to hear how the call ends
            os._exit(pipe.CUT_OFF)
        self.inbox.put(None)

    def _receive(self) -> bytes:
        while True:
            try:
                ready = self._poll.poll(_LOOK_AROUND * 1000)
                _die_as_orphan(self.parent)
                if ready:
                    return self._connection.recv(_CHUNK)
            except OSError:
                return b""

    def _take(self, message: pipe.ToChild) -> None:
        match message:
            case pipe.Answer(number, value, error):
                with self._lock:
                    answer = self._asked.pop(number, None)
                if answer is None or answer.cancelled():
                    return
                if error is None:
                    answer.set_result(value)
                else:
                    answer.set_exception(as_error(*error))
            case pipe.Stopping():
                self.stopping = True
            case _:
                self.inbox.put(message)


class LogToPod(logging.Handler):
    """Log records go to the pod, which has the handlers and knows the job."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._plain = logging.Formatter()
        self._standard = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()[:_LOG_TEXT]
            trace = self._plain.formatException(record.exc_info)[-_LOG_TEXT:] if record.exc_info else None
        except Exception as error:
            text, trace = f"(a log line that raised {type(error).__name__})", None
        extra = {
            name: value
            for name, value in vars(record).items()
            if name not in self._standard and (value is None or isinstance(value, str | int | float | bool))
        }
        place = (record.pathname, record.lineno, record.funcName or "")
        extra = {name: pipe.clean(value) if isinstance(value, str) else value for name, value in extra.items()}
        trace = None if trace is None else pipe.clean(trace)
        said = pipe.Logged(record.name, record.levelno, pipe.clean(text), place, trace, extra, joblog.is_kept())
        self._link.send(said)


class Worker:
    """Runs the calls."""

    def __init__(self, link: Link, app: Any, main: str | None, runner: asyncio.Runner) -> None:
        self._link = link
        self._app = app
        self._main = main
        self._runner = runner
        self._state: Any = None
        self._leave = asyncio.Event()
        self._lifespan: asyncio.Task[None] | None = None
        self._coroutine: asyncio.Task[Any] | None = None
        self._is_idle = False
        self._is_calling = False
        self._cancelled = False
        self._home = os.getcwd()
        self._environ = dict(os.environ)

    def open(self) -> None:
        self._runner.run(self._enter())
        signal.signal(signal.SIGTERM, self._on_term)

    def close(self) -> None:
        self._runner.run(self._exit())

    def serve(self) -> None:
        while not self._cancelled:
            self._is_idle = True
            message = self._link.inbox.get()
            self._is_idle = False
            if not isinstance(message, pipe.Start):
                return
            self._link.calling = True
            self._link.send(self._call(message))
            self._link.calling = False
            self._put_back()

    async def _enter(self) -> None:
        """The lifespan is entered and left by one task, as some context managers demand."""
        entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def live() -> None:
            try:
                async with self._app.as_child() as state:
                    entered.set_result(state)
                    await self._leave.wait()
            except BaseException as error:
                if entered.done():
                    raise
                entered.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

        self._lifespan = asyncio.create_task(live(), name="lifespan")
        self._state = await entered

    async def _exit(self) -> None:
        self._leave.set()
        if self._lifespan is not None:
            await asyncio.wait((self._lifespan,), timeout=_LAST_WAIT)
            if self._lifespan.done() and not self._lifespan.cancelled() and self._lifespan.exception():
                logging.getLogger("treadle.child").error("the lifespan of a child", exc_info=self._lifespan.exception())

    def _call(self, start: pipe.Start) -> pipe.Done | pipe.Threw | pipe.Unknown:
        job = start.job
        task: Task[..., Any] | None = self._app.find(job.task)
        if task is None:
            return pipe.Unknown(job.task)
        context = self._context(start, task)
        for name, level in start.levels.items():
            logging.getLogger(name).setLevel(level)
        try:
            args, kwargs = task.decode(job.args)
        except Exception as error:
            return self._threw(error, context, "undecodable")
        if task.takes_context:
            args = (context, *args)
        function, stack = task.function, self._app.stack_of(task)
        if not task.is_async and stack.inside:  # a task of a thread, which runs here because it is a suspect
            function = middleware.inside(stack, context, function, takes_context=task.takes_context)
        bounds = _Bounds(start.memory, start.cpu)
        value, caught = None, None
        try:
            with bounds:
                self._is_calling = True
                try:
                    if task.is_async:
                        value, caught = self._runner.run(self._awaited(task, args, kwargs))
                    else:
                        value = function(*args, **kwargs)
                finally:
                    self._is_calling = False
        except BaseException as error:
            caught = error
        self._link.due = None
        if caught is not None:
            return self._threw(caught, context, "error", start.memory)
        return pipe.Done(*payload.keep_result(value), _left(context))

    async def _awaited(
        self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, BaseException | None]:
        loop = asyncio.get_running_loop()
        before = asyncio.all_tasks(loop)
        self._coroutine = asyncio.current_task()
        try:
            return await task.function(*args, **kwargs), None
        except BaseException as error:  # not raised: SystemExit would end the loop
            return None, error
        finally:
            self._coroutine = None
            for left in asyncio.all_tasks(loop) - before:
                logging.getLogger("treadle.child").warning("%s left a task behind, which is cancelled", task.name)
                left.cancel()

    def _context(self, start: pipe.Start, task: Task[..., Any]) -> Context[Any]:
        ask = partial(self._link.ask, token=start.job.token)
        note = partial(self._link.note, token=start.job.token)
        door = ChildDoor(ask, self._app)
        deadline = None if start.left is None else time.monotonic() + start.left
        return Context(
            job=start.job,
            state=self._state,
            cancelled=lambda: self._cancelled,
            stopping=lambda: self._link.stopping,
            remaining=lambda: None if deadline is None else deadline - time.monotonic(),
            slot=start.slot,
            max_attempts=start.max_attempts,
            door=door,
            notebook=ChildNotebook(ask, note, start.least),
            declared=FollowUps(self._app.find, door) if task.followed else None,
            commits=partial(note, "commits"),
            committed=partial(note, "settled"),
        )

    def _threw(
        self, error: BaseException, context: Context[Any], kind: ErrorKind, memory: int | None = None
    ) -> pipe.Threw:
        entry = entry_of(error, context.job, kind)
        if isinstance(error, MemoryError) and memory is not None:
            words = f"needed more than its {size_words(memory)} of memory"
            entry = msgspec.structs.replace(entry, kind="limit", message=words)
        return pipe.Threw(entry, pipe.types_of(error, self._main), pipe.thrown(error), _left(context))

    def _on_term(self, *_: object) -> None:
        _die_with(self._link.parent)
        self._cancelled = True
        if self._coroutine is not None:
            self._coroutine.get_loop().call_soon_threadsafe(self._coroutine.cancel)
        elif self._is_calling and self._link.busy:
            self._link.due = Terminated()
        elif self._is_calling:
            self._is_calling = False
            raise Terminated
        elif self._is_idle:
            sys.exit(0)

    def _put_back(self) -> None:
        """What a task has changed of the process, as far as that is cheap to see."""
        try:
            os.chdir(self._home)
        except OSError:
            self._cancelled = True  # no place to stand: another child has one
        if os.environ != self._environ:
            os.environ.clear()
            os.environ.update(self._environ)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        random.seed()


class _Bounds:
    """Limits around one call. Only the soft ones are moved: the hard ones could not be put back."""

    def __init__(self, memory: int | None, cpu: float | None) -> None:
        self._memory = memory
        self._cpu = cpu
        self._before: list[tuple[int, tuple[int, int]]] = []

    def __enter__(self) -> None:
        if self._memory is not None:
            # On top of what the interpreter and the app take themselves: nobody could guess how much that is.
            self._set(resource.RLIMIT_AS, address_space() + max(self._memory, _MEMORY_FLOOR))
        if self._cpu is not None:
            self._set(resource.RLIMIT_CPU, int(time.process_time() + self._cpu) + 1)

    def __exit__(self, *_: object) -> None:
        for kind, limits in self._before:
            resource.setrlimit(kind, limits)

    def _set(self, kind: int, soft: int) -> None:
        limits = resource.getrlimit(kind)
        self._before.append((kind, limits))
        hard = limits[1]
        resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _left(context: Context[Any]) -> pipe.Left:
    return pipe.Left(follow_ups=context.follow_ups, meta=context.new_meta, settled=context.outcome, rss=rss())


def _hold_on(lifeline: int, parent: int) -> None:
    """Die with the pod, and take along what we have started."""
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    launch.die_with_parent(parent, signal.SIGTERM)


def _die_as_orphan(parent: int) -> None:
    if os.getppid() != parent:
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _die_with(parent: int) -> None:
    """Also if the pod is only dying: its threads die one after the other, the first of them signals us, and with the
    last one the lifeline breaks. Whoever took that first signal for a cancel, and had left before the last thread died,
    would leave behind what it has started. Dearer than the look above, which is taken with every message."""
    _die_as_orphan(parent)
    if _is_dying(parent):
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _is_dying(pid: int) -> bool:
    """Whether a process is on its way out: its first thread has ended, has let go of its memory, or is to be killed."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            told = dict(line.split(b":", 1) for line in file if b":" in line)
    except OSError:
        return False  # no Linux; or it has gone, and another process is our parent now
    pending = int(told.get(b"SigPnd", b"0"), 16) | int(told.get(b"ShdPnd", b"0"), 16)
    killed = bool(pending >> (signal.SIGKILL - 1) & 1)
    return killed or b"VmSize" not in told or told[b"State"].split()[0] in b"ZX"


@contextmanager
def _said_to(link: Link) -> Generator[None]:
    """Whatever goes wrong before the first call is told to the pod, which tells its operator."""
    try:
        yield
    except BaseException as error:
        entry = entry_of(error, Job(id="", task="", queue="", state=State.RUNNING))
        where = f" ({entry.place})" if entry.place else ""
        link.send(pipe.Broken(f"{entry.type}: {entry.message}{where}"))
        raise SystemExit(1) from None


def _run_by_socket(link: Link) -> None:
    begin = link.inbox.get()
    if not isinstance(begin, pipe.Begin):
        return
    logging.getLogger().addHandler(LogToPod(link))
    main = None if begin.origin.main is None else begin.origin.main[0]
    with _said_to(link):
        app = load(begin.origin)
        if missing := [name for name in begin.tasks if app.find(name) is None]:
            raise LookupError(
                f"{begin.origin.app} has no task {missing[0]} where a child process imports it: declare it when its "
                "module is imported, not in a function or under `if __name__`"
            )
    with asyncio.Runner() as runner:
        worker = Worker(link, app, main, runner)
        with _said_to(link):
            worker.open()
        link.send(pipe.Ready(os.getpid()))
        worker.serve()
        worker.close()


def main(arguments: list[str]) -> NoReturn:
    number, lifeline, parent = map(int, arguments)
    for each in (number, lifeline):
        os.set_inheritable(each, False)  # what a task starts must not keep them open
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hold_on(lifeline, parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what is printed is seen while the task runs
    link = Link(socket.socket(fileno=number), parent)
    link.watch_forks()
    threading.Thread(target=link.read, name="treadle-pipe", daemon=True).start()
    _run_by_socket(link)
    sys.exit(0)


if __name__ == "__main__":
    # Not as `__main__`: what the app imports of Treadle must find this module, and what it says of itself.
    import importlib

    importlib.import_module("treadle.executors.child").main(sys.argv[1:])
