"""Keeping a storage open: one opens it, all use it, and callers without a loop are served on a loop of the app's own.

Opening and closing may be asked for from several loops and threads at once: one caller does it, the others wait for
that one. A child of a fork shares no thread and no connection with its parent: it forgets both, unclosed (to close
what the parent uses would harm the parent), and opens anew when it enqueues.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..core.errors import ConfigError
from ..ports import Storage

if TYPE_CHECKING:
    pass

T = TypeVar("T")

# What an ending interpreter, or the end of the sync thread, waits for at most.
LAST_WAIT: Final = 5.0


class Keep:
    """Implements `client.Keeper`: one storage, opened at most once at a time, whoever asks."""

    def __init__(self, make: Callable[[], Storage], *, is_ours: bool) -> None:
        self.current: Storage | None = None
        self._make = make
        self._is_ours = is_ours
        self._storage: Storage | None = None
        self._own: tuple[Storage | None, Storage | None] | None = None  # put aside while another is lent
        self._lock = threading.Lock()
        self._under_way: Future[None] | None = None
        self._users = 0  # inside `async with app`
        self._portal = Portal()
        _keeps.add(self)

    @property
    def storage(self) -> Storage:
        with self._lock:
            if self._storage is None:
                self._storage = self._make()
            return self._storage

    def make_by(self, make: Callable[[], Storage]) -> None:
        """Make it otherwise from now on. Nothing happens to one that was brought along, or is open."""
        with self._lock:
            if self._is_ours and self.current is None and self._own is None:
                self._make, self._storage = make, None

    async def open(self) -> Storage:
        while (storage := self.current) is None:
            await self._alone(self._open)
        return storage

    async def close(self) -> None:
        await self._close_while(lambda: True)

    async def _close_while(self, wanted: Callable[[], bool]) -> None:
        while wanted() and (self.current is not None or self._under_way is not None):
            await self._alone(self._close)
        if wanted():
            await self._portal.stop()

    async def enter(self) -> None:
        with self._lock:
            self._users += 1
        try:
            await self.open()
        except BaseException:
            with self._lock:
                self._users -= 1
            raise

    async def leave(self) -> None:
        with self._lock:
            self._users -= 1
        # Whoever enters while we wait for another's step keeps it open.
        await self._close_while(lambda: self._users == 0)

    def close_sync(self) -> None:
        while self.current is not None:
            self.run_sync(self._alone(self._close))
        self._portal.stop_sync()

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.run(work)

    def lend(self, storage: Storage) -> None:
        with self._lock:
            if self._own is None:
                self._own = (self._storage, self.current)
            self._storage, self.current = storage, None

    def take_back(self) -> None:
        with self._lock:
            if self._own is not None:
                (self._storage, self.current), self._own = self._own, None
        self._portal.ask_to_stop()  # started for the loan, perhaps; whoever needs it next gets another

    def let_go(self) -> None:
        """The app is gone. Called by the garbage collector, so it may not wait."""
        if sys.is_finalizing():
            return
        if self.current is not None:
            self._portal.start(self._close()).add_done_callback(lambda _: self._portal.ask_to_stop())
        else:
            self._portal.ask_to_stop()  # it may have been started for a storage that was only lent

    def forget(self) -> None:
        """In the child of a fork: the parent's threads are not here, and its connections are not ours to close."""
        self._lock = threading.Lock()
        self._under_way = None
        self._portal = Portal()
        if self._is_ours and self._storage is not None:
            _leaked.append(self._storage)
            self.current = self._storage = None

    async def _alone(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Take one step, or wait for the one that is under way: on any loop, so a lock of asyncio will not do."""
        mine = Future[None]()
        with self._lock:
            waits = self._under_way
            if waits is None:
                self._under_way = mine
        if waits is not None:
            # Shielded: a waiter that is cancelled must not cancel the step of another.
            await asyncio.shield(asyncio.wrap_future(waits))
            return
        try:
            await step()
        finally:
            self._under_way = None
            mine.set_result(None)

    async def _open(self) -> None:
        storage = self.storage
        await storage.open()
        self.current = storage

    async def _close(self) -> None:
        storage, self.current = self.current, None
        if storage is not None:
            await storage.close()


class Through:
    """Implements `client.Keeper`: the storage of another, seen through a wrapper. Opens and closes nothing itself."""

    def __init__(self, keep: Keep, wrap: Callable[[Storage], Storage]) -> None:
        self._keep = keep
        self._wrap = wrap
        self._seen: tuple[Storage, Storage] | None = None  # the one behind, and it as it is seen

    @property
    def current(self) -> Storage | None:
        behind = self._keep.current
        return None if behind is None else self._see(behind)

    @property
    def storage(self) -> Storage:
        return self._see(self._keep.storage)

    async def open(self) -> Storage:
        return self._see(await self._keep.open())

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        return self._keep.run_sync(work)

    def _see(self, behind: Storage) -> Storage:
        seen = self._seen
        if seen is None or seen[0] is not behind:
            self._seen = seen = (behind, self._wrap(behind))
        return seen[1]


class Unreachable:
    """Stands for a storage of another process, which cannot be had in this one."""

    async def open(self) -> None:
        raise ConfigError(
            "this App keeps its jobs in the memory of the worker: from a child process, ctx.enqueue and the others of "
            "the context reach them, and the App's own do not"
        )


class Portal:
    """A loop in a daemon thread, for callers that have none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._has_warned = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, waited for in the caller's thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a _sync call from inside a _sync call (a hook?) would wait for itself: use await")
        self._warn_on_loop()
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the caller ends the wait; the work should end too
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread()
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._thread.loop.result())

    async def stop(self) -> None:
        thread = self.ask_to_stop()
        if thread is not None and thread is not threading.current_thread():
            await asyncio.shield(asyncio.wrap_future(thread.ended))  # cancelled, it could not be set any more
            thread.join()  # it has nothing left to do but to vanish

    def stop_sync(self) -> None:
        if (thread := self.ask_to_stop()) is not None:
            thread.join(2 * LAST_WAIT)

    def ask_to_stop(self) -> _LoopThread | None:
        """What was started before is still finished; what is started after gets another thread."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.loop.result().call_soon_threadsafe(thread.asked.set)
            return thread

    def _warn_on_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        if not self._has_warned:
            self._has_warned = True
            text = "a _sync call blocks the event loop that it is called on: await the call without _sync instead"
            warnings.warn(text, RuntimeWarning, stacklevel=_depth_of_the_app())


def _depth_of_the_app() -> int:
    """How many calls below the caller the app's own code is: a warning is about that."""
    frame, depth = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("treadle."):
        frame, depth = frame.f_back, depth + 1
    return depth


class _LoopThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="treadle-sync", daemon=True)
        self.loop: Future[asyncio.AbstractEventLoop] = Future()
        self.asked = asyncio.Event()
        self.ended: Future[None] = Future()

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self.ended.set_result(None)

    async def _serve(self) -> None:
        self.loop.set_result(asyncio.get_running_loop())
        await self.asked.wait()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=LAST_WAIT)


_keeps: weakref.WeakSet[Keep] = weakref.WeakSet()
_leaked: list[Storage] = []


@atexit.register
def _close_all() -> None:
    # On a loop of its own, here: an ending interpreter starts no thread any more.
    for keep in list(_keeps):
        if keep.current is not None:
            try:
                asyncio.run(_close_soon(keep))
            except Exception:  # noqa: S110
                pass  # all that returned is committed; there is nobody left to tell


async def _close_soon(keep: Keep) -> None:
    async with asyncio.timeout(LAST_WAIT):
        await keep.close()


def _forget_all() -> None:
    for keep in list(_keeps):
        keep.forget()


if hasattr(os, "register_at_fork"):  # not on Windows, where there is no fork
    os.register_at_fork(after_in_child=_forget_all)
