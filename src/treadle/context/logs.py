"""The log of a job: `ctx.log`, and the records of `logging` that are made while a task runs.

Records are seen where they are made, by the record factory, and not by a handler: a handler on the root logger would
silence `logging.lastResort` and keep a later `basicConfig` from doing anything, and a logger that does not propagate
would not reach it. What the app's own settings hold back is not made, and so not seen; only what goes through `ctx.log`
is kept whatever they say.

Whose record it is, a context variable says, which `asyncio.to_thread` and the pool of threads carry over. A thread that
a task starts by itself has none: there, `ctx.log` still knows its job.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ..core.logline import LONGEST_LINE

Write = Callable[[int, str], None]
"""(level, text): keeps a line. It is called wherever a record is made, so it must not wait, raise or log."""

_told: Final[ContextVar[bool]] = ContextVar("treadle_told", default=False)
_finders: Final[list[Callable[[], Write | None]]] = []
_lock: Final = threading.Lock()


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records name the job, and are kept with it from level `least` on."""

    def __init__(self, logger: logging.Logger, fields: dict[str, Any], write: Write | None, least: int) -> None:
        super().__init__(logger, fields)
        self._write = write
        self._least = least

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self._write is not None and level >= self._least:
            self._write(level, text_of(self._record(level, msg, args, kwargs.get("exc_info"))))
        if not self.isEnabledFor(level):
            return
        msg, more = self.process(msg, kwargs)
        mark = _told.set(True)  # kept already, and not once more when the record is made
        try:
            self.logger.log(level, msg, *args, **{**more, "stacklevel": more.get("stacklevel", 1) + 1})
        finally:
            _told.reset(mark)

    def _record(self, level: int, msg: object, args: tuple[object, ...], exc_info: object) -> logging.LogRecord:
        record = logging.LogRecord(self.logger.name, level, "", 0, msg, args, None)
        error = exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1] if exc_info else None
        if error is not None:
            record.exc_info = (type(error), error, error.__traceback__)
        return record


def is_kept() -> bool:
    """Whether the record that is just being handled is in its job's log already."""
    return _told.get()


@contextmanager
def keeping(is_kept: bool) -> Generator[None]:
    """Make records that were kept elsewhere, in a child process, and are not to be kept once more."""
    mark = _told.set(is_kept)
    try:
        yield
    finally:
        _told.reset(mark)


def text_of(record: logging.LogRecord) -> str:
    """What a record says, with its trace, and without what looks like a secret in that."""
    try:
        text = record.getMessage()
    except Exception as error:  # arguments that do not fit, or whose own code raises
        words = record.msg[:LONGEST_LINE] if isinstance(record.msg, str) else type(record.msg).__name__
        text = f"{words} ({type(error).__name__} when it was put into words)"
    if record.exc_info and record.exc_info[0] is not None:
        from ..trace import mask  # only whoever runs tasks needs it: it would make every import slower

        try:
            text += "\n" + mask(_formatter.formatException(record.exc_info)[-LONGEST_LINE:])
        except Exception as error:
            text += f"\n<no trace: {type(error).__name__}>"
    return text


_formatter: Final = logging.Formatter()


def capture(find: Callable[[], Write | None]) -> Callable[[], None]:
    """From now on, hand every record that is made to what `find` answers with, if it does. Returns what ends it."""
    with _lock:
        _finders.append(find)
        if len(_finders) == 1:
            _Factory.put_in_place()

    def stop() -> None:
        with _lock:
            if find in _finders:
                _finders.remove(find)
            if not _finders:
                _Factory.take_away()

    return stop


class _Factory:
    """Makes records as the factory before it did, and shows them."""

    current: _Factory | None = None

    def __init__(self, before: Callable[..., logging.LogRecord]) -> None:
        self._before = before

    @classmethod
    def put_in_place(cls) -> None:
        if cls.current is None:  # or it is still there, under somebody else's
            cls.current = cls(logging.getLogRecordFactory())
            logging.setLogRecordFactory(cls.current)

    @classmethod
    def take_away(cls) -> None:
        if cls.current is not None and logging.getLogRecordFactory() is cls.current:
            logging.setLogRecordFactory(cls.current._before)
            cls.current = None

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._before(*args, **kwargs)
        if _finders and not _told.get():
            _show(record)
        return record


def _show(record: logging.LogRecord) -> None:
    for find in _finders:
        write = find()
        # `logging.makeLogRecord` asks for a record without a level, to fill it in afterwards.
        if write is not None and isinstance(record.levelno, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            write(record.levelno, f"{record.name}: {text_of(record)}")
            return
