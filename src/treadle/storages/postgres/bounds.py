"""Bounds: which values of a column the code can compute with, what is said of one beyond them, and what it becomes when
its row must be written.

The constraints of 0017_security.sql, and of the tables after it, keep the most harmful of them out (all would cost
every enqueue too much).
They are `not valid`: a row that was there before them stays, and so does one that was written while somebody had
dropped them. It must harm nobody:

* who reads many rows reads it as well as can be (`rows`), and computes nothing from it in SQL that could fail;
* who would claim it ends it as failed instead (`damaged`);
* who must write it otherwise (a cancel, a rescue) has it put right first, here: else the constraint would refuse that;
* `treadle doctor` names it.

A condition on a null holds. Every column of a number, a time, an array or a closed set of words is here, or is among
those that a test knows to be harmless.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from .talk import Talk

MOST: Final = (1 << 30) - 1
LONGEST: Final = 1e11
MOST_ROWS: Final = 10_000  # of each end of a large table that doctor looks at
MOST_NAMED: Final = 10


class Bound(Struct, frozen=True):
    """A condition on {0}, the column, and what stands in for a value that breaks it; "" if nothing can."""

    holds: str
    instead: str = ""


_FIRST: Final = "timestamptz '0001-01-01 00:00:00+00'"
_COUNT: Final = Bound(f"{{0}} between 0 and {MOST}", "least(greatest({0}, 0), 1000000000)")  # with room to count on
_MAYBE_COUNT: Final = Bound(f"{{0}} between 0 and {MOST}", "null")
_LARGE: Final = Bound("{0} >= 0 and {0} < 4611686018427387904")
_PRIORITY: Final = Bound("{0} between -100 and 100", "least(greatest({0}, -100), 100)")
_DURATION: Final = Bound("{0} between 0 and 1e11", "null")
_RATE: Final = Bound("{0} > 0 and {0} <= 1e11", "null")
_AMOUNT: Final = Bound("{0} between -1e11 and 1e11")
_INSTANT: Final = Bound(
    f"{{0}} >= {_FIRST} and {{0}} < timestamptz '10000-01-01 00:00:00+00'",
    f"least(greatest({{0}}, {_FIRST}), timestamptz '9999-12-31 00:00:00+00')",
)
_MOMENT: Final = Bound("{0} < timestamptz '10000-01-01 00:00:00+00'")
_SECONDS: Final = Bound(
    "{0} >= -62135596800 and {0} < 253402300800", "least(greatest({0}, -62135596800), 253402300799)"
)
_NAME: Final = Bound("octet_length({0}) <= 128", "left({0}, 32)")
_TAGS: Final = Bound(
    "array_ndims({0}) = 1 and cardinality({0}) <= 20 and array_position({0}, null) is null", "null::text[]"
)
_JSON: Final = Bound("btrim({0}) like '{{%}}'", "'{{}}'")


def _one_of(*words: str, instead: str = "") -> Bound:
    return Bound(f"{{0}} in ({', '.join(repr(word) for word in words)})", instead)


_JOB: Final = {
    **dict.fromkeys(["attempt", "crashes", "snoozes", "throttles", "error_count"], _COUNT),
    "priority": _PRIORITY,
    "max_attempts": _MAYBE_COUNT,
    "timeout": _DURATION,
    **dict.fromkeys(["run_at", "created_at", "started_at"], _INSTANT),
    "queue": _NAME,
    "task": _NAME,
    "tags": _TAGS,
}
TABLES: Final[dict[str, dict[str, Bound]]] = {
    "job": {"state": _one_of("waiting", "ready", "running"), **_JOB, "deadline": _INSTANT},
    "job_history": {"state": _one_of("succeeded", "failed", "cancelled"), **_JOB, "finished_at": _INSTANT},
    "held": {"until": _INSTANT},
    "queue": {
        "name": _NAME,
        "version": _COUNT,
        "max_workers": _MAYBE_COUNT,
        "cool_exponent": _COUNT,
        "aging": _RATE,
        "timeout": _DURATION,
        **dict.fromkeys(["paused_at", "paused_until", "cool_until"], _INSTANT),
    },
    "lane": {"queue": _NAME, "priority": _PRIORITY},
    "pod": {
        "card": _JSON,
        "stats": _JSON,
        "wish": _one_of("serve", "quiet", "stop", instead="'serve'"),
        **dict.fromkeys(["started_at", "beat_at", "lease_until", "stacks_at", "stacks_asked"], _INSTANT),
    },
    "leader": {"one": Bound("{0} = 1"), "term": _LARGE, "until": _MOMENT},
    "run": {"deadline": _INSTANT},
    "share": {"share": _COUNT},
    "job_error": {"n": _COUNT, "ended_at": _INSTANT},
    "schedule": {"version": _COUNT},
    "fire": {"fire_at": _SECONDS, "at": _SECONDS},
    "rate_limit": {
        "version": _COUNT,
        "capacity": _COUNT,
        "refill": _RATE,
        "tokens": _AMOUNT,
        "at": _SECONDS,
    },
    "named_lock": {"fence": _LARGE, "until": _INSTANT},
    "catalog": {"seen_at": _INSTANT},
    "operation": {"version": _COUNT, "created_at": _SECONDS, "finished_at": _SECONDS},
    "audit": {"at": _SECONDS},
    "rollup": {"resolution": Bound(f"{{0}} between 1 and {MOST}"), "at": _SECONDS},
    "reading": {"resolution": Bound(f"{{0}} between 1 and {MOST}"), "at": _SECONDS},
    "event": {"at": _SECONDS},
    "job_progress": {"attempt": _COUNT, "at": _SECONDS},
    "job_checkpoint": {"attempt": _COUNT, "at": _SECONDS},
    "job_log": {"attempt": _COUNT, "n": Bound("{0} between -62135596800000000 and 253402300800000000")},
    "answer": {
        "timeout": Bound("{0} between 0 and 1e11", "0"),
        "delay": _DURATION,
        **dict.fromkeys(["opened_at", "expires_at", "at"], _SECONDS),
    },
    "mute": {"at": _SECONDS, "until": _SECONDS},
    "deploy": {"version": Bound("octet_length({0}) <= 256"), "first_at": _SECONDS, "seen_at": _SECONDS},
}
# By what a row is found again: the columns of its key, as they stand in a `where`.
KEYS: Final[dict[str, str]] = {
    "held": "key", "queue": "name", "lane": "queue", "pod": "id", "leader": "one", "run": "job_id", "share": "pod",
    "job_error": "job_id", "schedule": "name", "fire": "name", "rate_limit": "scope", "named_lock": "name",
    "catalog": "name", "operation": "id", "audit": "id", "rollup": "queue", "reading": "pod", "event": "job_id",
    "job_progress": "job_id", "job_checkpoint": "job_id", "job_log": "job_id", "answer": "id", "mute": "cause",
    "deploy": "version",
}  # fmt: skip

# Table, key, queue, task, what is wrong.
Flaw: TypeAlias = tuple[str, str, str, str, str]


def is_broken(table: str) -> str:
    """The condition that one of the bounds is broken; the row is called `job`."""
    held = " and ".join(f"({bound.holds.format(f'job.{column}')})" for column, bound in TABLES[table].items())
    return f"({held}) is false"


def what(table: str) -> str:
    """Which columns are beyond their bounds, and what they hold."""
    parts = ", ".join(
        f"case when ({bound.holds.format(f'job.{column}')}) is false "
        f"then '{column} is ' || left(job.{column}::text, 40) end"
        for column, bound in TABLES[table].items()
    )
    return f"concat_ws(', ', {parts})"


def mended(table: str) -> str:
    """The assignments that put a row right. What nothing stands in for stays."""
    return ", ".join(
        f"{column} = case when ({bound.holds.format(f'job.{column}')}) is false "
        f"then {bound.instead.format(f'job.{column}')} else job.{column} end"
        for column, bound in TABLES[table].items()
        if bound.instead
    )


def _mend(table: str, which: str) -> str:
    return f"update treadle.{table} as job set {mended(table)} where {which} and {is_broken(table)} returning 1"


_MEND: Final = [_mend(table, "job.id = any ($1::uuid[])") for table in ("job", "job_history")]
_MEND_QUEUE: Final = [
    _mend("queue", "job.name = $1::text"),
    _mend("job", "job.queue = $1::text and job.state = 'ready'"),
]
_NAMED: Final = "job.id::text, left(job.queue, 128), left(job.task, 128)"
_IN_JOBS: Final = f"""
(select '{{table}}', {_NAMED}, {{what}}
from (
    (select * from treadle.{{table}} order by id desc limit {{most}})
    union all
    (select * from treadle.{{table}} order by id limit {{most}})
) as job
where {{broken}}
limit {MOST_NAMED})
"""
_IN_ALL_JOBS: Final = f"""
(select '{{table}}', {_NAMED}, {{what}} from treadle.{{table}} as job where {{broken}} limit {MOST_NAMED})
"""
_ELSEWHERE: Final = f"""
(select '{{table}}', left(job.{{key}}::text, 128), '', '', {{what}}
from (select * from treadle.{{table}} limit {MOST_ROWS}) as job
where {{broken}}
limit {MOST_NAMED})
"""


def mend(ids: Sequence[str]) -> Talk[bool]:
    """Put the rows of jobs right, so that they can be written; whether there was anything to put right."""
    return (yield from _put_right(_MEND, list(ids)))


def mend_queue(name: str) -> Talk[bool]:
    """The same of a queue, and of its jobs, which an edit of it may write to."""
    return (yield from _put_right(_MEND_QUEUE, name))


def _put_right(statements: Sequence[str], which: object) -> Talk[bool]:
    found = False
    for statement in statements:
        found = bool((yield statement, (which,))) or found
    return found


def flaws(small: Mapping[str, bool]) -> Talk[list[Flaw]]:
    """Rows beyond their bounds in these tables, all that there are; but of large tables of jobs, only those among the
    newest and the oldest."""
    pieces: list[str] = []
    for table in TABLES.keys() & small.keys():
        text = _ELSEWHERE if table in KEYS else _IN_ALL_JOBS if small[table] else _IN_JOBS
        key = KEYS.get(table, "id")
        pieces.append(text.format(table=table, key=key, what=what(table), broken=is_broken(table), most=MOST_ROWS))
    found = (yield f"select distinct * from ({' union all '.join(pieces)}) as flaw", ()) if pieces else []
    return sorted((table, key, queue, task, wrong) for table, key, queue, task, wrong in found)
