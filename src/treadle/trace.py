"""What is kept of an exception: its type, its words, a bounded trace, and the place in the user's code.

Nothing here may fail: an exception's own `__str__` may raise or be a hundred megabytes long, and still its job must be
written as failed. Local variables are never kept; values of secret-looking keys are masked.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from types import TracebackType
from typing import Final

from .core.errors import AnswerExpired
from .core.job import ErrorEntry, ErrorKind, Job

TEXT_LIMIT: Final = 16 * 1024
MESSAGE_LIMIT: Final = 2 * 1024
NAME_LIMIT: Final = 512
FRAME_LIMIT: Final = 64

# Linear, whatever the text: both begin at a fixed word rather than at the word that it ends, and nothing is read twice.
# (One that began with `[\w-]*` took a pod's loop for twelve seconds over 16 KiB of "a-a-a-".)
_SECRET: Final = re.compile(
    r"""(?ix) ((?:password|passwd|secret|token|authorization|api[_-]?key|cookie|dsn)
        [\w-]{0,128}+ ["']? \s*+ [=:] \s*+)
        (?:"[^"]*"|'[^']*'|(?:bearer\s+|basic\s+)?[^\s,;(){}\[\]"']+)"""
)
# A user's name may stand before the @; a word of sixteen characters and more is a token.
_URL_PASSWORD: Final = re.compile(r"(://)(?:([^\s:/@]*+:)[^\s@/]+|[^\s:/@]{16,})@")
_HERE: Final = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES: Final = tuple(
    {_HERE, *(path for name in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(name)))}
)


def entry_of(exception: BaseException, job: Job, kind: ErrorKind = "error") -> ErrorEntry:
    """The history entry for an attempt that ended with this exception."""
    if isinstance(exception, AnswerExpired) and kind == "error":
        kind = "expired"
    return ErrorEntry(
        attempt=job.attempt,
        kind=kind,
        type=_bounded(_type_name(exception), NAME_LIMIT),
        message=_bounded(mask(_words(exception)), MESSAGE_LIMIT),
        trace=_bounded(mask(_trace(exception)), TEXT_LIMIT),
        place=_bounded(_place(exception.__traceback__), NAME_LIMIT),
        pod=job.pod,
        started_at=job.started_at,
    )


def mask(text: str) -> str:
    """The text without what looks like a password, a token or a key."""
    return _URL_PASSWORD.sub(r"\1\2***@", _SECRET.sub(r"\1***", text))


def _type_name(exception: BaseException) -> str:
    kind = type(exception)
    module = str(kind.__module__ or "builtins")  # a class that was made by hand may have none
    # Ours are known by the name that users import.
    is_plain = module in ("builtins", "__main__") or module.startswith("treadle.core.")
    return kind.__qualname__ if is_plain else f"{module}.{kind.__qualname__}"


def _words(exception: BaseException) -> str:
    try:
        return str(exception)[:TEXT_LIMIT]
    except BaseException as worse:  # an exception that cannot even be named is named by its type
        return f"<{type(exception).__name__}; its text raised {type(worse).__name__}>"


def _trace(exception: BaseException) -> str:
    try:
        begin = _begin(exception.__traceback__)
        summary = traceback.TracebackException(type(exception), exception, begin, limit=-FRAME_LIMIT, compact=True)
        return "".join(summary.format())[-4 * TEXT_LIMIT :]  # before the masks look at it: it may be endless
    except BaseException as worse:
        return f"<no trace: {type(worse).__name__}>"


def _begin(trace: TracebackType | None) -> TracebackType | None:
    """Where the user's own part of a trace begins: our frames above it tell nobody anything."""
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_HERE):
        found = found.tb_next
    return found or trace


def _bounded(text: str, limit: int) -> str:
    """At most `limit` bytes of storable text. The end is kept: the innermost frame and the message stand there."""
    clean = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace")
    if len(clean) > limit:
        clean = b"[cut] " + clean[6 - limit :]
    return clean.decode("utf-8", "ignore")


def _place(trace: TracebackType | None) -> str:
    """module:function of the innermost frame outside libraries, or of the innermost frame at all."""
    own, last = "", ""
    while trace is not None:
        frame = trace.tb_frame
        last = f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            own = last
        trace = trace.tb_next
    return own or last
