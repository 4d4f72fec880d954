"""Wire: what a pod and a worker in another language say to each other. Values and bytes; nothing here waits.

One JSON object a line, UTF-8, by its `type`. The protocol is told in docs/protocol.md, and has a number: both sides
say theirs before anything else, and a worker of another number is not used.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..core.text import visible

PROTOCOL: Final = 1
LONGEST_LINE: Final = 4 * 1024 * 1024  # a result of 1 MiB, with room for escapes
_SHOWN: Final = 80

Status = Literal["succeeded", "failed", "retry", "snooze", "throttle", "fail", "cancelled"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]


class Garbage(Exception):
    """What came is not what the protocol says. The words are for people."""


# To the worker --------------------------------------------------------------------------------------------------------


class Hello(Struct, frozen=True, tag="hello"):
    """The first line."""

    protocol: int
    pool: str
    heartbeat: float | None = None  # seconds that a worker may be silent while it runs a job
    longest_line: int = LONGEST_LINE


class Run(Struct, frozen=True, tag="run"):
    """One job. `id` names this run, and no other of this worker."""

    id: str
    job: str
    task: str
    args: dict[str, Any]
    attempt: int
    max_attempts: int
    queue: str
    timeout: float | None = None  # seconds left


class Cancel(Struct, frozen=True, tag="cancel"):
    """This run is not wanted any more: answer soon, or be killed."""

    id: str


Order: TypeAlias = Hello | Run | Cancel


# From the worker ------------------------------------------------------------------------------------------------------


class Ready(Struct, frozen=True, tag="ready"):
    """The answer to hello."""

    protocol: int


class Error(Struct, frozen=True):
    """What went wrong, in the words of the other language."""

    message: str = ""
    type: str = ""
    trace: str = ""


class Progress(Struct, frozen=True, tag="progress"):
    id: str
    done: float
    total: float | None = None
    note: str = ""
    data: Any = None


class Log(Struct, frozen=True, tag="log"):
    message: str
    id: str | None = None
    level: LogLevel = "info"


class Heartbeat(Struct, frozen=True, tag="heartbeat"):
    id: str | None = None


class Outcome(Struct, frozen=True, tag="outcome"):
    """The end of a run. `after` is in seconds."""

    id: str
    status: Status
    result: Any = None
    error: Error | str | None = None
    after: float | None = None

    @property
    def told(self) -> Error:
        return self.error if isinstance(self.error, Error) else Error(self.error or "")


Report: TypeAlias = Ready | Progress | Log | Heartbeat | Outcome


# Bytes ----------------------------------------------------------------------------------------------------------------

_encoder: Final = msgspec.json.Encoder()
_orders: Final = msgspec.json.Decoder(Order)
_reports: Final = msgspec.json.Decoder(Report)


def encode(message: Order | Report) -> bytes:
    """One line, with its end."""
    return _encoder.encode(message) + b"\n"


def decode_order(line: bytes) -> Order:
    """For workers in Python, and for tests."""
    order: Order = _decode(_orders, line)
    return order


def decode(line: bytes) -> Report:
    """What a worker said. Garbage if it is no line of this protocol."""
    report: Report = _decode(_reports, line)
    match report:
        case Outcome() if report.after is not None and not _is_wait(report.after):
            raise Garbage(f"after must be a number of seconds, not {report.after}")
        case Outcome() if report.status in ("retry", "snooze") and report.after is None:
            raise Garbage(f"{report.status} needs after, a number of seconds")
        case Progress() if not all(math.isfinite(each) and each >= 0 for each in (report.done, report.total or 0.0)):
            raise Garbage("progress is counted from 0 on")
        case _:
            return report


def _decode(decoder: msgspec.json.Decoder[Any], line: bytes) -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Garbage(f"{_shown(line)}: {error}") from None


def _is_wait(seconds: float) -> bool:
    return math.isfinite(seconds) and 0 <= seconds <= 36_525 * 86_400.0


def _shown(line: bytes) -> str:
    text = line[: _SHOWN + 1].decode("utf-8", "replace")
    shown = visible(text[:_SHOWN])
    return f"{shown}…" if len(text) > _SHOWN else shown


class Lines:
    """Bytes in, whole lines out. Never keeps more than one line's bytes."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends; empty ones are left out. Garbage if one is too long."""
        first, *rest = data.split(b"\n")
        if len(self._held) + len(first) > self._longest:
            raise Garbage(f"a line of more than {self._longest:,} bytes")
        self._held += first
        if not rest:
            return []
        lines = [bytes(self._held), *rest[:-1]]
        if max(map(len, rest)) > self._longest:
            raise Garbage(f"a line of more than {self._longest:,} bytes")
        self._held = bytearray(rest[-1])
        return [stripped for line in lines if (stripped := line.strip(b"\r"))]
