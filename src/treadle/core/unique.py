"""Is it the same job? A rule makes a key, and at most one live job holds a key.

The key is built in two steps because two parties know the parts. The client knows task, queue and arguments: that is
the base key. The storage's clock alone says which period it is: the storage makes the full key as it inserts.

Keys of different origin never meet, whatever text a caller chooses. A given key is kept as it is, so that people find
it again; a derived one starts with one `#`, and one with a period's number ends with one. A given key that starts or
ends with `#` gets one more there, which no derived key has.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, cast

import msgspec

from . import payload
from .duration import Duration, seconds
from .job import NewJob, OnConflict

LONGEST_KEY: Final = 512

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
# Keeps this hash apart from any other that is made of the same text, such as the choice of a partition.
_PURPOSE: Final = b"treadle.unique"
_to_json: Final = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Unique:
    """What makes two jobs the same.

    Without a `key` it is derived from the task and its arguments, or only those named in `args`; `by_queue` adds the
    queue. With a `period`, jobs are the same only within one fixed window of that length; `include_succeeded` makes a
    job hold its key until the window ends, even after it succeeded. `on_conflict` says what becomes of a request whose
    key is held: `skip` it, `replace` what has not started, or `keep_last`: that too, and while the holder runs the
    newest request is kept and run once after it.

    With `debounce` every request puts the job off by so long, and the newest one's arguments count; with a `cap` it is
    never put off beyond so long after the first. It keeps the last.

    >>> Unique(args=("user_id",), period="1h").period
    3600.0
    >>> Unique(debounce="5s", cap="1m").on_conflict
    'keep_last'
    """

    key: str | None = None
    args: tuple[str, ...] | None = None
    by_queue: bool = False
    period: Duration | None = None
    include_succeeded: bool = False
    on_conflict: OnConflict = "skip"
    debounce: Duration | None = None
    cap: Duration | None = None

    @classmethod
    def debounced(
        cls,
        quiet: Duration,
        *,
        cap: Duration | None = None,
        key: str | None = None,
        args: tuple[str, ...] | None = None,
        by_queue: bool = False,
    ) -> Unique:
        """Run once it has been quiet for so long, at the latest `cap` after the first request."""
        return cls(key=key, args=args, by_queue=by_queue, debounce=quiet, cap=cap)

    @classmethod
    def once_per(
        cls,
        period: Duration,
        *,
        key: str | None = None,
        args: tuple[str, ...] | None = None,
        by_queue: bool = False,
    ) -> Unique:
        """Run at most once in every window of this length: the first request counts, the others are duplicates."""
        return cls(key=key, args=args, by_queue=by_queue, period=period, include_succeeded=True)

    def __post_init__(self) -> None:
        if self.key is not None:
            _check_key(self.key)
            if self.args is not None or self.by_queue:
                raise ValueError("unique: a given key stands for itself; args and by_queue are for a derived one")
        if isinstance(cast("object", self.args), str):
            raise ValueError(f"unique: args must be a tuple of names, such as ({self.args!r},)")
        if self.args is not None:
            object.__setattr__(self, "args", tuple(self.args))
        if self.period is not None:
            period = seconds(self.period, "unique period")
            if period == 0:
                raise ValueError("unique period must be longer than zero")
            object.__setattr__(self, "period", period)
        elif self.include_succeeded:
            raise ValueError("unique: include_succeeded needs a period, or a job that succeeded would block for ever")
        if self.on_conflict not in ("skip", "replace", "keep_last"):
            raise ValueError(f'unique: on_conflict must be "skip", "replace" or "keep_last", not {self.on_conflict!r}')
        if self.debounce is not None:
            self._settle_debounce(self.debounce)
        elif self.cap is not None:
            raise ValueError("unique: a cap limits a debounce: give that too")
        if self.on_conflict == "keep_last" and self.include_succeeded:
            raise ValueError("unique: include_succeeded drops what keep_last would keep: choose one of them")

    def _settle_debounce(self, debounce: Duration) -> None:
        quiet = seconds(debounce, "unique debounce")
        if quiet == 0:
            raise ValueError("unique debounce must be longer than zero")
        if self.period is not None:
            raise ValueError("unique: a period would cut a debounced burst in two: choose one of them")
        object.__setattr__(self, "debounce", quiet)
        if self.cap is not None:
            cap = seconds(self.cap, "unique cap")
            if cap < quiet:
                raise ValueError("unique cap must not be shorter than the debounce")
            object.__setattr__(self, "cap", cap)
        if self.on_conflict == "skip":
            object.__setattr__(self, "on_conflict", "keep_last")


def base_key(rule: Unique, task: str, queue: str, args_json: str) -> str:
    """The key without its period. `args_json` is the arguments as the payload has them, one JSON object."""
    if rule.key is not None:
        return _apart(rule.key)
    arguments: dict[str, Any] = payload.decode_trusted(args_json)
    if rule.args is not None:
        missing = [name for name in rule.args if name not in arguments]
        if missing:
            raise ValueError(f"unique: task {task!r} was called without the argument {missing[0]!r} that its key needs")
        arguments = {name: arguments[name] for name in rule.args}
    identity = _to_json([task, queue if rule.by_queue else None, arguments])
    return f"#{blake2b(identity, digest_size=16, person=_PURPOSE).hexdigest()}"


def full_key(base: str, period: float | None, now: float) -> str:
    """The key that is held, by the storage's clock: windows are fixed, not sliding."""
    return base if period is None else f"{base}@{math.floor(now / period)}#"


def period_end(period: float, now: float) -> float:
    """When the window that `now` lies in ends."""
    return (math.floor(now / period) + 1) * period


def due(new: NewJob, now: float, first: float) -> float:
    """When a request is due that overwrites one of which the first was asked for at `first`. Its delay counts from now,
    and a cap from the first."""
    wanted = max(now, new.run_at) if new.run_at is not None else now + new.delay
    if new.unique is None or new.unique.cap is None:
        return wanted
    return max(now, min(wanted, first + new.unique.cap))


def _apart(key: str) -> str:
    return f"{'#' if key.startswith('#') else ''}{key}{'#' if key.endswith('#') else ''}"


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not 1 <= len(key) <= LONGEST_KEY or _UNSTORABLE.search(key):
        raise ValueError(f"unique key must be text of 1 to {LONGEST_KEY} characters, without NUL")
