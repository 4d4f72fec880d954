"""Children: started in a session of their own, heard until they end, and ended as a group.

A child leads its own process group, so that one signal reaches what it has started. When the leader ends, the rest of
its group is killed *before* the leader is reaped: as long as it is a zombie, nobody else can have its number.

A process that has left the group (`setsid`, twice forked) is out of reach without cgroups.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from ..core.errors import ConfigError
from . import launch

_REAP: Final = 0.2
_LAUNCH: Final = str(Path(launch.__file__).absolute())


def check_program(program: str, what: str) -> str | None:
    """ConfigError unless the program is there, can be run, and belongs to its owner alone. The answer is a warning."""
    try:
        path = Path(program).resolve(strict=True)
        found = path.stat()
    except OSError as error:
        raise ConfigError(f"{what}: {program}: {error.strerror or error}") from None
    if not stat.S_ISREG(found.st_mode) or not os.access(path, os.X_OK):
        raise ConfigError(f"{what}: {program} is not a program that can be run")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{what}: {program} can be rewritten by others than its owner: chmod go-w {path}")
    for folder in path.parents:
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise ConfigError(f"{what}: {program} can be replaced by anybody: chmod o-w {folder}")
    if os.geteuid() != 0 and os.access(path, os.W_OK):
        return f"{what}: {program} can be rewritten by this worker's own user: whoever gets hold of one gets the other"
    return None


def start(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    cwd: str,
    limits: Mapping[str, int],
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    user: tuple[int, int] | None = None,
) -> Child:
    """Start a program that dies with this process. Its output is in pipes, its descriptors are 0, 1 and 2."""
    if not sys.executable:
        raise ConfigError("programs are started by Python, and this process does not know where its own is")
    told = launch.spec(os.getpid(), {"core": 0, **limits}, environ, user)
    popen = subprocess.Popen(  # noqa: S603 (declared by the app, and checked)
        [sys.executable, "-I", "-S", _LAUNCH, told, *argv],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        cwd=cwd,
        close_fds=True,
        start_new_session=True,
    )
    return Child(popen)


class Child:
    """A process that leads its own group. Made on the loop that is to hear of its end."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen
        self.pid = popen.pid
        self.signalled = False  # by us
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._pidfd = -1
        self._watch()

    @property
    def ended(self) -> bool:
        return self._exit.done()

    async def exit(self) -> int:
        """Its exit code, or the signal that ended it as a negative number. Waiting for it may be given up."""
        return await asyncio.shield(self._exit)

    def signal(self, number: int) -> None:
        """To the whole group, unless the leader has ended: then there is no group any more."""
        if not self._exit.done():
            self.signalled = True
            _kill_group(self.pid, number)

    async def end(self, grace: float) -> int:
        """TERM, as much as `grace` to obey, KILL. Returns when it has ended."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                return await self.exit()
        self.signal(signal.SIGKILL)
        return await self.exit()

    def kill(self) -> None:
        """KILL, and reap it without a loop, if it dies soon: for those who cannot wait."""
        if not self._exit.done():
            self.signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(_REAP)
                self._on_end()

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # another system than Linux, or an old one
            threading.Thread(target=self._wait, name=f"treadle-wait-{self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_end)

    def _wait(self) -> None:
        with contextlib.suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:  # macOS, before Python 3.13
                self.popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._on_end)

    def _on_end(self) -> None:
        if self._exit.done():
            return
        if self._pidfd >= 0:
            with contextlib.suppress(Exception):  # a closed loop has forgotten it
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        _kill_group(self.pid, signal.SIGKILL)  # whatever it has left behind, before its number is anybody's
        code = self.popen.wait()
        with contextlib.suppress(RuntimeError):  # whoever waits for it has no loop any more
            self._exit.set_result(code)


def _kill_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def name_of(number: int) -> str:
    """SIGSEGV, or the number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Pipe(asyncio.Protocol):
    """One end of a child's output: whatever comes is handed on at once, so that the child never waits for us."""

    def __init__(self, heard: Any) -> None:
        self._heard = heard
        self._transport: asyncio.ReadTransport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, stream: IO[bytes], heard: Any) -> Pipe:
        """`heard` is called with every piece of bytes."""
        pipe = cls(heard)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: pipe, stream)
        pipe._transport = transport
        return pipe

    def data_received(self, data: bytes) -> None:
        self._heard(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def user(what: str, name: str | None) -> tuple[int, int] | None:
    """The numbers of a user that a child shall run as; None: as we do."""
    if name is None:
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise ConfigError(f"{what}: there is no user {name}") from None
    if os.geteuid() not in (0, found.pw_uid):
        raise ConfigError(f"{what}: only root can run it as {name}")
    return None if os.geteuid() != 0 else (found.pw_uid, found.pw_gid)
