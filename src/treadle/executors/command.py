"""Commands: a program for each run, started without a shell, watched, bounded, and ended as a group.

What it prints goes to the job's log line by line, and a tail of it is kept. What it may do is decided by its
declaration (`treadle.tasks.external.command`); what its exit means, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import IO, Any, Final

from ..core import jail, payload
from ..core import size as sizes
from ..core.errors import ConfigError, PayloadError
from ..core.job import ErrorEntry, Job
from ..core.outcome import ChildLost, Elsewhere, Fail
from ..ports import Call
from ..tasks.external.command import Command
from ..trace import mask
from . import deaths, posix
from .folders import Folders, remove
from .output import LineLog, Tail

log = logging.getLogger("treadle.command")

ERROR_TAIL: Final = 4 * 1024
DRAIN: Final = 0.5  # how long a pipe may stay open after its program has ended: somebody has run away with it
LAST_CALL: Final = 1.0


class CommandExecutor:
    name = "command"
    cancels = True
    asks = True

    def __init__(
        self, commands: Iterable[Command], find: Callable[[str], Command | None], *, grace: float = 5.0
    ) -> None:
        """`commands` are looked at when it starts, `find` gives that of a job's task. `grace` is between TERM and
        KILL; when the pod itself ends there is half of it."""
        self._commands = list(commands)
        self._find = find
        self._grace = grace
        self._folders: dict[str, Folders] = {}
        self._children: set[posix.Child] = set()
        self._ending: set[asyncio.Task[Any]] = set()

    def places(self) -> int | None:
        return None

    async def start(self) -> None:
        for command in self._commands:
            what = f"task {command.task}"
            if warning := posix.check_program(command.program, what):
                log.warning("%s", warning)
            _user(command)
            cwd = command.around.cwd
            if cwd is not None and not _is_folder(cwd):
                raise ConfigError(f"{what}: its cwd {cwd} is not a folder")
            if cwd is None:
                try:
                    await asyncio.to_thread(self._below(command).open)
                except OSError as error:
                    raise ConfigError(f"{what}: no folder can be made in {_root(command)}: {error.strerror}") from None

    async def run(self, call: Call) -> Any:
        job, context = call.job, call.context
        command = None if job is None else self._find(job.task)
        if job is None or command is None:
            raise Fail("this worker knows no such command")
        arguments = payload.decode_trusted(job.args)
        try:
            attempt = _Attempt(command, arguments, job)
        except PayloadError as error:  # it was enqueued by name, or its declaration has changed
            raise Fail(str(error)) from None
        # Whatever happens to whoever waits: the program is ended and its folder is removed.
        return await self._to_the_end(self._attempt(attempt, context), attempt, context)

    async def close(self) -> None:
        for child in list(self._children):
            child.signal(signal.SIGKILL)
        if self._ending:
            await asyncio.wait(self._ending, timeout=LAST_CALL)
        for folders in self._folders.values():
            await asyncio.to_thread(folders.close)
        self._folders.clear()

    async def _to_the_end(self, work: Coroutine[Any, Any, Any], attempt: _Attempt, context: Any) -> Any:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                stopping = context is not None and context.stopping
                attempt.stop(self._grace / 2 if stopping else self._grace)
                await asyncio.wait([task])
            failed = task.cancelled() or task.exception() is not None
            if attempt.ended_by_itself and not failed:
                return task.result()  # it was done before it could be stopped: that is no cancel any more
            raise

    async def _attempt(self, attempt: _Attempt, context: Any) -> Any:
        command = attempt.command
        await asyncio.to_thread(_check_files, attempt.files)
        user = _user(command)
        cwd = command.around.cwd
        folder = None if cwd is not None else self._below(command).make(user)
        try:
            home = cwd or folder or "/"
            code = await attempt.run(home, user, context, self._children)
            return attempt.verdict(code)
        finally:
            if folder is not None:
                await asyncio.to_thread(remove, folder)

    def _below(self, command: Command) -> Folders:
        return self._folders.setdefault(_root(command), Folders(_root(command)))


class _Attempt:
    """One run of one command."""

    def __init__(self, command: Command, arguments: dict[str, Any], job: Job) -> None:
        self.command = command
        self._job = job
        self._argv = command.argv(arguments)
        self.files = command.files(arguments)
        whole = command.whole(arguments) if command.stdin_json else None
        self._input = command.input(arguments) if whole is None else payload.encode_arguments(whole)
        self._stdout = Tail(command.output)
        self._stderr = Tail(ERROR_TAIL)
        self._child: posix.Child | None = None
        self._stops: asyncio.Task[int] | None = None
        self._grace: float | None = None
        self._kills = 0

    async def run(self, home: str, user: tuple[int, int] | None, context: Any, children: set[posix.Child]) -> int:
        around = self.command.around
        self._kills = deaths.oom_kills()
        with _stdin(self._input) as stdin:
            try:
                child = posix.start(
                    self._argv, environ=around.environ(home), cwd=home, limits=around.limits, stdin=stdin, user=user
                )
            except (OSError, ValueError) as error:  # too many arguments, no more processes
                raise Elsewhere(self._entry("OSError", f"it could not be started: {error}")) from None
        self._child = child
        children.add(child)
        logs = (
            [LineLog(lambda line: context.keep_line(logging.INFO, mask(line))) for _ in range(2)]
            if context is not None
            else []
        )
        pipes: list[posix.Pipe] = []
        try:
            for stream, tail, lines in zip(
                (child.popen.stdout, child.popen.stderr),
                (self._stdout, self._stderr),
                logs or (None, None),
                strict=True,
            ):
                assert stream is not None
                pipes.append(await posix.Pipe.open(stream, _both(tail, lines)))
            if self._grace is not None:
                self.stop(self._grace)
            code = await child.exit()
            await asyncio.wait([pipe.closed for pipe in pipes], timeout=DRAIN)
            return code
        finally:
            for pipe in pipes:
                pipe.close()
            for lines in logs:
                lines.close()
            if not child.ended:
                child.kill()
            children.discard(child)

    def stop(self, grace: float) -> None:
        """TERM to all of it, and KILL if it does not obey in time."""
        self._grace = grace
        if self._child is not None and self._stops is None:
            self._stops = asyncio.create_task(self._child.end(grace))

    @property
    def ended_by_itself(self) -> bool:
        return self._child is not None and not self._child.signalled

    def verdict(self, code: int) -> Any:
        """What the end of the program means: the result, or an exception."""
        if code < 0:
            raise self._lost(code)
        match self.command.outcome(code):
            case "done":
                return self._result()
            case "retry":
                raise Elsewhere(self._entry("ExitCode", self._words(code)))
            case Fail():
                raise Fail("\n".join(filter(None, (f"exit code {code}", self._stderr.text().strip()))))
            case signal_:
                raise signal_

    def _result(self) -> Any:
        text = self._stdout.text()
        if not text.strip():
            return None
        if self._stdout.is_whole and not self.command.is_text:
            with contextlib.suppress(PayloadError):
                return payload.decode(text, what="result", limit=max(payload.LIMIT, len(text) * 4))
        return text.removesuffix("\n").removesuffix("\r")

    def _words(self, code: int) -> str:
        last = self._stderr.text().strip().rpartition("\n")[2].strip()
        return f"exit code {code}: {last}" if last else f"exit code {code}"

    def _lost(self, code: int) -> ChildLost:
        limits = self.command.around.limits
        if code == -signal.SIGXFSZ and "file" in limits:
            return ChildLost(f"wrote a file larger than {sizes.words(limits['file'])}", "limit")
        return deaths.cause(
            code,
            memory=limits.get("memory"),
            cpu=limits.get("cpu"),
            starved=deaths.oom_kills() > self._kills,
        )

    def _entry(self, kind: str, message: str) -> ErrorEntry:
        job = self._job
        return ErrorEntry(
            attempt=job.attempt,
            kind="error",
            type=kind,
            message=mask(message)[:2048],
            trace=mask(self._stderr.text()),
            place=self.command.program,
            pod=job.pod,
            started_at=job.started_at,
        )


def _both(tail: Tail, lines: LineLog | None) -> Callable[[bytes], None]:
    def heard(data: bytes) -> None:
        tail.feed(data)
        if lines is not None:
            lines.feed(data)

    return heard


def _stdin(text: str | None) -> IO[bytes]:
    """A file that ends, rather than a pipe that somebody must feed."""
    if text is None:
        return Path(os.devnull).open("rb")
    try:
        file: IO[bytes] = os.fdopen(os.memfd_create("stdin"), "w+b")
    except (AttributeError, OSError):
        file = tempfile.TemporaryFile()  # noqa: SIM115 (its caller closes it)
    file.write(text.encode("utf-8", "surrogatepass"))
    file.flush()
    file.seek(0)
    return file


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)


def _check_files(files: Iterable[tuple[str, str, str]]) -> None:
    """A symbolic link may lead out of the folder that a job's files must be in: that is seen only here and now."""
    for name, folder, path in files:
        if not jail.is_within(os.path.realpath(folder), os.path.realpath(path)):
            raise Fail(f"{name}: {path} leads out of {folder}")


def _root(command: Command) -> str:
    return command.root or str(Path(tempfile.gettempdir()).absolute())


def _user(command: Command) -> tuple[int, int] | None:
    return posix.user(f"task {command.task}", command.around.user)
