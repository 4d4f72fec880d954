"""Record: one row of a storage on its way to another, as plain values under the names of its columns.

Instants are seconds since the epoch, arrays are lists, JSON is text. Every storage may keep them in its own way, so two
records are the same when nobody could tell them apart afterwards: an instant to the microsecond, JSON by its meaning,
an empty list as none. A column that only one side has says nothing.

A job's record has all columns of its row, its `errors` (oldest first), and `seq`, its place in the order of insertion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

Record: TypeAlias = dict[str, Any]

# The finest that every storage tells apart, with room for the rounding of both sides.
FINEST: Final = 2e-6
_PLACE: Final = frozenset({"seq"})


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The columns in which two records of one row differ."""
    return sorted(name for name in (one.keys() & other.keys()) - _PLACE if not is_same(one[name], other[name]))


def is_same(one: Any, other: Any) -> bool:
    """Whether two values mean the same, wherever each was kept."""
    if one == other or (not one and not other and _is_nothing(one) and _is_nothing(other)):
        return True
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(one - other) <= FINEST
    if isinstance(one, str) and isinstance(other, str):
        return _is_same_json(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        left, right = cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", other)
        return all(is_same(left.get(name), right.get(name)) for name in left.keys() | right.keys())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        first, second = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
        return len(first) == len(second) and all(map(is_same, first, second))
    return False


def _is_nothing(value: Any) -> bool:
    return value is None or isinstance(value, (list, tuple))


def _is_same_json(one: str, other: str) -> bool:
    if one[:1] not in ("{", "[") or other[:1] not in ("{", "["):
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def returned(job: Record) -> Record:
    """A job's record as it is when nobody runs it. A claim whose pod is gone is as if it had never been: due as before,
    uncharged, and its token is worth nothing. If a cancel was wanted, there is nobody left to ask: it is cancelled."""
    if job["state"] != "running":
        return job
    state = "ready"
    ended: Record = {}
    if job.get("cancel_wanted"):
        state = "cancelled"
        # Not the time of the copy: the same job must look the same whenever the copy is repeated.
        ended = {"finished_at": job["started_at"]}
    attempt = max(0, job["attempt"] - 1)
    free: Record = {"pod": None, "slot": None, "token": None, "deadline": None, "cancel_wanted": False}
    return {**job, **free, **ended, "state": state, "attempt": attempt}


def restarted(operation: Record) -> Record:
    """An operation's record for another storage. How far it has come is told in the words of the one that it leaves:
    what is left to do is looked for anew, and what was done no longer asks for it."""
    try:
        body: Any = json.loads(operation["body"])
    except (TypeError, ValueError):
        return operation
    if not isinstance(body, dict) or "cursor" not in body:
        return operation
    return {**operation, "body": json.dumps({**cast("Record", body), "cursor": None}, ensure_ascii=False)}


def state_at(job: Record, now: float) -> str:
    """The state that a reader sees: a storage keeps scheduled and ready as one."""
    return "scheduled" if job["state"] == "ready" and job["run_at"] > now else str(job["state"])
