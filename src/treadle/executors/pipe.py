"""What a pod and its child processes say to each other: messages, and the frames that they travel in.

A frame is four bytes of length and so many bytes of JSON, one message each, over a socket that both ends keep. Nothing
here reads or writes: bytes in, messages out, and back. Both ends are always of one version, since the pod starts the
child; so nothing here is negotiated.

The pod says `Begin` once and `Start` for each call; while one runs it may say `Stopping`, and `Answer` to what was
asked. The child says `Ready` or `Broken` once, and for each call any number of `Logged` and `Ask`, then `Done` or
`Threw`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ..core.job import ErrorEntry, Job, NewJob
from ..core.outcome import Cancel, Fail, Release, RetryAfter, Signal, Snooze, Succeeded, Throttle, Wait
from .origin import Origin

CUT_OFF: Final = 113  # the exit code of a child whose task has closed its connection
_TEXT: Final = 16 << 10
LARGEST: Final = 64 << 20  # a payload has a megabyte at most, and a job's errors about half of one


class Begin(Struct, frozen=True, tag="begin"):
    origin: Origin
    tasks: tuple[str, ...]  # that must be there


class Start(Struct, frozen=True, tag="start", kw_only=True):
    job: Job
    slot: str | None
    max_attempts: int
    left: float | None  # seconds to its deadline
    least: int  # the level from which lines are kept
    levels: dict[str, int]  # logger → that from which it logs
    memory: int | None = None
    cpu: float | None = None


class Stopping(Struct, frozen=True, tag="stopping"):
    pass


class Answer(Struct, frozen=True, tag="answer"):
    id: int
    value: Raw = Raw(b"null")
    error: tuple[str, str] | None = None  # the name of its class, and what it says


class Ready(Struct, frozen=True, tag="ready"):
    pid: int


class Broken(Struct, frozen=True, tag="broken"):
    """It cannot serve, and ends."""

    why: str


class Unknown(Struct, frozen=True, tag="unknown"):
    """It has no such task, and has begun nothing."""

    task: str


class Ask(Struct, frozen=True, tag="ask"):
    """What the task asks of its context: answered by the pod's own parts."""

    id: int  # 0: no answer is wanted
    verb: str
    value: Raw
    token: str | None = None  # of the run that asks: a thread that its task has left behind must not speak for the next


class Logged(Struct, frozen=True, tag="logged", omit_defaults=True):
    logger: str
    level: int
    text: str
    place: tuple[str, int, str] = ("", 0, "")
    trace: str | None = None
    extra: dict[str, Any] = {}
    kept: bool = False  # in the job's log, already


class Left(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call leaves in its context, however it ends."""

    follow_ups: tuple[NewJob, ...] = ()
    meta: str | None = None
    settled: Succeeded | None = None  # committed by a transaction of the task's own
    rss: int = 0


class Done(Struct, frozen=True, tag="done"):
    result: str | None
    warning: str | None
    left: Left


class Thrown(Struct, frozen=True, omit_defaults=True):
    """One of our own signals."""

    kind: str
    delay: float | None = None
    message: str = ""


class Threw(Struct, frozen=True, tag="threw"):
    error: ErrorEntry
    types: tuple[str, ...]
    signal: Thrown | None
    left: Left


ToChild: TypeAlias = Begin | Start | Stopping | Answer
FromChild: TypeAlias = Ready | Broken | Unknown | Ask | Logged | Done | Threw

to_child: Final[msgspec.json.Decoder[ToChild]] = msgspec.json.Decoder(ToChild)
from_child: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


def encode(message: ToChild | FromChild) -> bytes:
    text = msgspec.json.encode(message)
    return len(text).to_bytes(4, "big") + text


class Frames:
    """Bytes as they come, cut into the messages that they hold. ValueError if they cannot be ours."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        held = self._held
        held += data
        found: list[bytes] = []
        begin = 0
        while len(held) - begin >= 4:
            size = int.from_bytes(held[begin : begin + 4], "big")
            if size > LARGEST:
                raise ValueError(f"a frame of {size} bytes")
            if len(held) - begin - 4 < size:
                break
            found.append(bytes(held[begin + 4 : begin + 4 + size]))
            begin += 4 + size
        del held[:begin]
        return found


def thrown(error: BaseException) -> Thrown | None:
    """A signal as it travels; None for everything else, which travels as its entry alone."""
    match error:
        case RetryAfter() | Snooze() | Throttle():
            kind = next(each for each in _SIGNALS if isinstance(error, _SIGNALS[each]))
            return Thrown(kind, delay=error.delay, message=_words(error))
        case Fail():
            return Thrown("fail", message=_words(error))
        case Cancel():
            return Thrown("cancel", message=_words(error))
        case Wait():
            return Thrown("wait", message=error.token)
        case Release():
            return Thrown("release")
        case _:
            return None


def clean(text: str) -> str:
    """Text that can travel: not without end, and all of it characters (names of files may hold what is none)."""
    return text[:_TEXT].encode("utf-8", "backslashreplace").decode()


def _words(error: BaseException) -> str:
    try:
        return clean(str(error))
    except Exception:  # its own code; the entry says so
        return ""


def signal_of(said: Thrown) -> Signal:
    """The signal again."""
    match said.kind:
        case "retry":
            return RetryAfter(said.delay or 0.0, said.message)
        case "snooze":
            return Snooze(said.delay or 0.0)
        case "throttle":
            return Throttle(said.delay)
        case "wait":
            return Wait(said.message)
        case "cancel":
            return Cancel(said.message)
        case "release":
            return Release()
        case _:
            return Fail(said.message)


_SIGNALS: Final[dict[str, type[Signal]]] = {"retry": RetryAfter, "snooze": Snooze, "throttle": Throttle}


def types_of(error: BaseException, main: str | None) -> tuple[str, ...]:
    """The names of an exception's class and its bases. What a script calls `__main__` has another name where it is
    imported: such a class is known by both."""
    found = [(each.__module__, each.__qualname__) for each in type(error).__mro__ if each is not object]
    found += [("__main__", name) for module, name in found if module == main]
    return tuple(f"{module}.{name}" for module, name in found)
