"""What a task says of its own run: progress, a log, checkpoints, and the iteration that goes on behind a checkpoint.

A Context writes into a Notebook, which its pod holds. Progress and lines are only noted there; the pod writes them, at
most once a second. A checkpoint is written at once, and `await ctx.checkpoint(…)` returns when it is durable.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Generator, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from ..core import payload
from ..core.duration import Duration, seconds
from ..core.job import Job
from ..core.outcome import Halt, Release

if TYPE_CHECKING:
    from ..core.progress import Progress, ProgressView, Reported

T = TypeVar("T")
R = TypeVar("R")

Source = Iterable[T] | AsyncIterable[T] | Callable[[Any], Iterable[T] | AsyncIterable[T]]
"""What is iterated over; or a function of where to go on, which opens it there."""
SyncSource = Iterable[T] | Callable[[Any], Iterable[T]]

META_LIMIT: Final = 16 * 1024
OUR_META: Final = "treadle:"
_VALUE: Final = "value"
_CURSORS: Final = "cursors"


class Notebook(Protocol):
    """Where the words of a run go. From any thread, but for the coroutines, which may run on any loop."""

    @property
    def least(self) -> int:
        """The lowest level of lines that are kept."""
        ...

    def progress(self, job: Job, progress: Progress) -> None: ...
    def line(self, job: Job, level: int, text: str) -> None: ...
    async def flush(self, job: Job) -> None: ...
    async def last_progress(self, job: Job) -> Reported | None: ...
    async def save(self, job: Job, checkpoint: str) -> None:
        """Durable when it returns. ClaimLost if the run has lost its claim."""
        ...

    async def saved(self, job: Job) -> str | None: ...


class Reporting:
    """A part of Context."""

    __slots__ = ("_iterated", "_new_meta", "_notebook", "_point")  # of all parts of Context, only one may have any

    _notebook: Notebook | None
    _point: dict[str, Any] | None  # the job's checkpoint, once it was asked for
    _iterated: tuple[str, ...]
    _new_meta: str | None

    if TYPE_CHECKING:
        _job: Job
        _cancelled: Callable[[], bool]
        _stopping: Callable[[], bool]

        def _wait(self, work: Coroutine[Any, Any, R]) -> R: ...

    # Progress and lines ----------------------------------------------------------------------------------------------

    async def progress(
        self, done: float, total: float | str | None = None, note: str = "", data: object = None
    ) -> None:
        """Say how far this run has come: `await ctx.progress(0.4, "page 4 of 10")`, or `(4, 10, "pages")`, or `(4)` if
        nobody knows of how many. It is shown within a second or two, and never waited for. `data` is for whoever shows
        more than a bar, 16 KiB at most; a note is cut at 1 KiB."""
        self.progress_sync(done, total, note, data)

    def progress_sync(self, done: float, total: float | str | None = None, note: str = "", data: object = None) -> None:
        from ..core.progress import progress_of

        said = progress_of(done, total, note, data)
        if self._notebook is not None:
            self._notebook.progress(self._job, said)

    async def flush(self) -> None:
        """Wait until what this run has said is written. Not more often than once a second: it waits for that, too."""
        if self._notebook is not None:
            await self._notebook.flush(self._job)

    def flush_sync(self) -> None:
        self._wait(self.flush())

    async def last_progress(self) -> ProgressView | None:
        """What was last said of this job's progress: by this run, or else by the attempt before it."""
        from ..core.view import progress_view

        found = None if self._notebook is None else await self._notebook.last_progress(self._job)
        return None if found is None else progress_view(found)

    def last_progress_sync(self) -> ProgressView | None:
        return self._wait(self.last_progress())

    def keep_line(self, level: int, text: str) -> None:
        """Add a line to the job's log, and to nothing else: for what did not come by `logging`. From any thread."""
        if self._notebook is not None:
            self._notebook.line(self._job, level, text)

    # Checkpoints -----------------------------------------------------------------------------------------------------

    async def checkpoint(self, value: object) -> None:
        """Keep a value (JSON, 64 KiB at most) for the attempt after this one, in the place of the one before. It is
        durable when this returns. ClaimLost if another run has the job by now: this one should stop."""
        await self._save({**await self._load(), _VALUE: value})

    def checkpoint_sync(self, value: object) -> None:
        self._wait(self.checkpoint(value))

    async def resume(self, default: Any = None) -> Any:
        """The last checkpoint of this job, whichever attempt left it; `default` if there is none."""
        return (await self._load()).get(_VALUE, default)

    def resume_sync(self, default: Any = None) -> Any:
        return self._wait(self.resume(default))

    async def cursor(self, name: str = "") -> Any:
        """Where an iteration of this job has come to; None if it has not begun. `iterate` asks this."""
        return (await self._load()).get(_CURSORS, {}).get(name)

    async def save_cursor(self, name: str, cursor: object) -> None:
        point = await self._load()
        await self._save({**point, _CURSORS: {**point.get(_CURSORS, {}), name: cursor}})

    async def _load(self) -> dict[str, Any]:
        if self._point is None:
            text = None if self._notebook is None else await self._notebook.saved(self._job)
            self._point = {} if text is None else cast("dict[str, Any]", payload.decode_trusted(text))
        return self._point

    async def _save(self, point: dict[str, Any]) -> None:
        from ..core.progress import checkpoint_of

        text = checkpoint_of(point)
        if self._notebook is not None:
            await self._notebook.save(self._job, text)
        self._point = payload.decode_trusted(text)  # as the next attempt will see it

    # Iteration -------------------------------------------------------------------------------------------------------

    async def iterate(
        self,
        source: Source[T],
        *,
        key: Callable[[T], object] | None = None,
        name: str = "",
        every: Duration = 1.0,
    ) -> AsyncGenerator[T]:
        """Go through a source and remember where: `async for user in ctx.iterate(users, key=lambda user: user.id):`.

        An item counts as done when the loop asks for the next one. Every second (`every`), and when the pod stops, the
        last one's key is kept by a checkpoint, and the next attempt goes on behind it: after a crash, at most the last
        second's items come again. When the pod stops, the run is given back, uncharged, at the end of the item.

        `source` is an iterable, sync or async, in the same order every time; items that are done are passed over. Or it
        is a function that opens it behind a key: `ctx.iterate(lambda after: pages(after), key=…)`, with None at first.
        Without `key` items are counted. Two iterations in one task need a `name` each.
        """
        walk = _Walk(self._begin(name), key, seconds(every, "every"), await self.cursor(name))
        if not walk.is_over:
            async for item in _each(walk.open(source)):
                if walk.is_done(item):
                    continue
                self._check()
                yield item
                if walk.pass_by(item) or self._stopping():
                    await self.save_cursor(name, walk.mark())
            walk.end()
            await self.save_cursor(name, walk.mark())

    def iterate_sync(
        self,
        source: SyncSource[T],
        *,
        key: Callable[[T], object] | None = None,
        name: str = "",
        every: Duration = 1.0,
    ) -> Generator[T]:
        """`iterate` for a plain function; a cancel and a deadline end it, too."""
        walk = _Walk(self._begin(name), key, seconds(every, "every"), self._wait(self.cursor(name)))
        if not walk.is_over:
            for item in cast("Iterable[T]", walk.open(source)):
                if walk.is_done(item):
                    continue
                self._check()
                yield item
                if walk.pass_by(item) or self._stopping():
                    self._wait(self.save_cursor(name, walk.mark()))
            walk.end()
            self._wait(self.save_cursor(name, walk.mark()))

    def _begin(self, name: str) -> str:
        if name in self._iterated:
            raise ValueError(f"this task iterates twice under the name {name!r}: ctx.iterate(…, name=…)")
        self._iterated = (*self._iterated, name)
        return name

    def _check(self) -> None:
        """Before another item: whether there should be one."""
        if self._cancelled():
            raise Halt("asked to stop between two items")
        if self._stopping():
            raise Release

    # Meta ------------------------------------------------------------------------------------------------------------

    def set_meta(self, **entries: object) -> None:
        """Add entries to the job's meta. They are stored with the finish of this run, however it ends, and the next
        attempt sees them in `ctx.meta`; so does this one, from now on."""
        for key in entries:
            if key.startswith(OUR_META):
                raise ValueError(f"meta keys that start with {OUR_META!r} are Treadle's own")
        self._new_meta = payload.encode({**self.meta, **entries}, what="meta", limit=META_LIMIT)

    @property
    def meta(self) -> dict[str, Any]:
        """The job's meta, as a fresh copy each time."""
        text = self._job.meta if self._new_meta is None else self._new_meta
        return {} if text is None else payload.decode_trusted(text)

    @property
    def new_meta(self) -> str | None:
        """The job's meta as it is to be stored with the finish; None: as it is."""
        return self._new_meta


def at_once(work: Coroutine[Any, Any, R]) -> R:
    """The answer of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: R = done.value
        return answer
    work.close()
    raise RuntimeError("it would have to wait, and there is nobody to wait for")


async def _each(source: Iterable[T] | AsyncIterable[T]) -> AsyncGenerator[T]:
    if isinstance(source, AsyncIterable):
        async for item in source:
            yield item
    else:
        for item in source:
            yield item


class _Walk:
    """One iteration: where it began, how far it has come."""

    def __init__(self, name: str, key: Callable[[Any], object] | None, every: float, cursor: Any) -> None:
        found = cast("dict[str, Any]", cursor) if isinstance(cursor, dict) else {}
        self.is_over = bool(found.get("over"))
        self._name = name
        self._key = key
        self._every = every
        self._passed: int = found.get("passed", 0)
        self._last: Any = found.get("last")
        self._to_skip = 0
        self._skip_to: str | None = None  # the key of the last item that was done, as JSON
        self._saved_at = time.monotonic()

    def open(self, source: Any) -> Any:
        if callable(source):
            return source(self._last if self._key is not None else self._passed)
        if self._passed and self._key is not None:
            self._skip_to = payload.encode(self._last, what="key")
        elif self._key is None:
            self._to_skip = self._passed
        return source

    def is_done(self, item: Any) -> bool:
        """Whether an earlier attempt has done this one."""
        if self._to_skip:
            self._to_skip -= 1
            return True
        if self._skip_to is not None:
            if payload.encode(self._of(item), what="key") == self._skip_to:
                self._skip_to = None
            return True
        return False

    def pass_by(self, item: Any) -> bool:
        """An item is done. Whether it is time to say so."""
        self._passed += 1
        self._last = self._of(item)
        if time.monotonic() - self._saved_at < self._every:
            return False
        self._saved_at = time.monotonic()
        return True

    def mark(self) -> dict[str, Any]:
        if self.is_over:
            return {"over": True, "passed": self._passed}
        return {"passed": self._passed} if self._key is None else {"passed": self._passed, "last": self._last}

    def end(self) -> None:
        if self._skip_to is not None:
            raise LookupError(
                f"iterate: the source no longer has the item {self._skip_to[:100]}, behind which it would go on; "
                "give a function that opens it there: ctx.iterate(lambda after: …, key=…)"
            )
        self.is_over = True

    def _of(self, item: Any) -> object:
        return None if self._key is None else self._key(item)
