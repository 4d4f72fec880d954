"""Bounds: which values of a column the code can compute with, and what `treadle doctor` says of one beyond them.

SQLite keeps any type in any column, cannot add a CHECK to a table that is there, and anybody may write to the file. So
nothing refuses such a value here; the code that reads (`rows`), claims (`take`) and writes (`apply`) lives with it, and
doctor names it. A null is in bounds: where a column must have a value, SQLite says so itself.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from typing import Final, TypeAlias

from .rows import Database

MOST_ROWS: Final = 10_000  # of each end of the table of jobs; of every other table, the first
MOST_NAMED: Final = 10

_NUMBER: Final = "typeof({0}) in ('integer', 'real')"
_COUNT: Final = "typeof({0}) = 'integer' and {0} between 0 and 1073741823"
_LARGE: Final = "typeof({0}) = 'integer' and {0} between 0 and 4611686018427387904"
_RESOLUTION: Final = "typeof({0}) = 'integer' and {0} between 1 and 1073741823"
_FLAG: Final = "typeof({0}) = 'integer' and {0} in (0, 1)"
_PRIORITY: Final = "typeof({0}) = 'integer' and {0} between -100 and 100"
_FORMAT: Final = "typeof({0}) = 'integer' and {0} between 0 and 32767"
_DURATION: Final = f"{_NUMBER} and {{0}} between 0 and 1e11"
_RATE: Final = f"{_NUMBER} and {{0}} > 0 and {{0}} <= 1e11"
_AMOUNT: Final = f"{_NUMBER} and {{0}} between -1e11 and 1e11"
_SECONDS: Final = f"{_NUMBER} and {{0}} >= -62135596800 and {{0}} < 253402300800"
_SINCE_EVER: Final = f"{_NUMBER} and {{0}} < 253402300800"
_TEXT: Final = "typeof({0}) = 'text'"
_VERSION: Final = "typeof({0}) = 'text' and length({0}) between 1 and 64"
_TAGS: Final = (
    "typeof({0}) = 'text' and case when json_valid({0}) then json_type({0}) = 'array' and json_array_length({0}) <= 20 "
    "and not exists (select 1 from json_each({0}) where json_each.type <> 'text') else 0 end"
)


def _one_of(*words: str) -> str:
    return f"typeof({{0}}) = 'text' and {{0}} in ({', '.join(repr(word) for word in words)})"


TABLES: Final[dict[str, dict[str, str]]] = {
    "job": {
        "id": _TEXT,
        "queue": _TEXT,
        "task": _TEXT,
        "state": _one_of("waiting", "ready", "running", "succeeded", "failed", "cancelled"),
        "priority": _PRIORITY,
        **dict.fromkeys(["run_at", "created_at", "started_at", "deadline", "finished_at"], _SECONDS),
        **dict.fromkeys(["attempt", "crashes", "snoozes", "throttles", "error_count", "max_attempts"], _COUNT),
        **dict.fromkeys(["pinned", "cancel_wanted"], _FLAG),
        "timeout": _DURATION,
        "format": _FORMAT,
        "tags": _TAGS,
        **dict.fromkeys(["args", "meta", "reason", "unique_key", "pod", "slot", "token", "result"], _TEXT),
    },
    "job_error": {"n": _COUNT},
    "held": {"until": _SECONDS},
    "queue": {
        "name": _TEXT,
        "version": _COUNT,
        "paused": _FLAG,
        "max_workers": _COUNT,
        "cool_exponent": _COUNT,
        **dict.fromkeys(["paused_at", "paused_until", "cool_until"], _SECONDS),
    },
    "pod": {
        "card": _TEXT,
        "lost": _FLAG,
        "wish": _one_of("serve", "quiet", "stop"),
        **dict.fromkeys(["started_at", "beat_at", "stacks_at", "stacks_asked"], _SECONDS),
        "lease_until": _SECONDS,
    },
    "leader": {"term": _LARGE, "until": _SINCE_EVER},
    "fence": {"last": _LARGE},
    "share": {"share": _COUNT},
    "schedule": {"version": _COUNT},
    "fire": {"fire_at": _SECONDS, "at": _SECONDS, "manual": _FLAG},
    "limit": {"version": _COUNT, "capacity": _COUNT, "refill": _RATE, "tokens": _AMOUNT, "at": _SECONDS},
    "lock": {"fence": _LARGE, "until": _SECONDS},
    "catalog": {"seen_at": _SECONDS},
    "operation": {"version": _COUNT, "created_at": _SECONDS, "finished_at": _SECONDS},
    "audit": {"at": _SECONDS},
    "rollup": {"resolution": _RESOLUTION, "at": _SECONDS},
    "reading": {"resolution": _RESOLUTION, "at": _SECONDS},
    "event": {"at": _SECONDS},
    "job_progress": {"attempt": _COUNT, "at": _SECONDS},
    "job_checkpoint": {"attempt": _COUNT, "at": _SECONDS},
    "job_log": {"attempt": _COUNT, "n": "typeof({0}) = 'integer'"},
    "answer": {
        "timeout": _DURATION,
        "delay": _DURATION,
        **dict.fromkeys(["opened_at", "expires_at", "at"], _SECONDS),
        "waits": _FLAG,
    },
    "mute": {"at": _SECONDS, "until": _SECONDS},
    "deploy": {"version": _VERSION, "first_at": _SECONDS, "seen_at": _SECONDS},
}
KEYS: Final[dict[str, str]] = {
    "job_error": "seq", "held": "key", "queue": "name", "pod": "id", "leader": "one", "fence": "one", "share": "pod",
    "schedule": "name", "fire": "name", "limit": "scope", "lock": "name", "catalog": "name", "operation": "id",
    "audit": "id", "rollup": "queue", "reading": "pod", "event": "job_id", "job_progress": "job_id",
    "job_checkpoint": "job_id", "job_log": "job_id", "answer": "id", "mute": "cause",
    "deploy": "version",
}  # fmt: skip

# Table, key, queue, task, what is wrong.
Flaw: TypeAlias = tuple[str, str, str, str, str]


def flaws(db: Database) -> list[Flaw]:
    """Rows beyond their bounds, among the newest and oldest jobs and wherever else there are not many rows."""
    found: list[Flaw] = []
    for table, columns in TABLES.items():
        if table == "job":
            some = (
                f"select * from (select * from treadle_job order by seq desc limit {MOST_ROWS}) "
                f"union all select * from (select * from treadle_job order by seq limit {MOST_ROWS})"
            )
            named = (
                f"case when typeof(id) = 'text' then id else 'with seq ' || seq end, {_said('queue')}, {_said('task')}"
            )
        else:
            some = f"select * from treadle_{table} limit {MOST_ROWS}"
            named = f"{_said(KEYS[table])}, '', ''"
        broken = " or ".join(f"({_broken(column, holds)})" for column, holds in columns.items())
        wrong = " || ".join(
            f"case when {_broken(column, holds)} then ', {column} is ' || {_said(column)} else '' end"
            for column, holds in columns.items()
        )
        text = f"select {named}, substr({wrong}, 3) from ({some}) where {broken} limit {2 * MOST_NAMED}"
        for key, queue, task, what in db.execute(text).fetchall():
            found.append((table, _readable(key), _readable(queue), _readable(task), _readable(what)))
    return [*dict.fromkeys(found)]  # of a small table both ends are the whole


def _broken(column: str, holds: str) -> str:
    return f"{column} is not null and not ({holds.format(column)})"


def _said(column: str) -> str:
    """A value as people read it; of bytes that are no text, their digits."""
    digits = f"'x''' || hex(substr({column}, 1, 20)) || ''''"
    return f"case typeof({column}) when 'blob' then {digits} else substr({column}, 1, 40) end"


def _readable(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
