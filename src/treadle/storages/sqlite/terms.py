"""A Filter as SQL: what the database can test by itself, and what is left for `core.filter.matches`.

Texts of the operator go into parameters, never into the SQL. Each condition says exactly what `matches` says, so a
negated term is one that is *not true*, also where a column is null.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts; what operators wrote goes into parameters

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from ...core import filter as filters
from ...core.filter import Filter, Interval, Term, Value
from ...core.job import POISON_CRASHES, State
from ...ports import Clock

_HIGHEST: Final = 2**63 - 1
ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
_COLUMNS: Final = {
    "id": "job.id",
    "queue": "job.queue",
    "task": "job.task",
    "unique": "job.unique_key",
    "pod": "job.pod",
}
_MEASURES: Final = {
    "created": "job.created_at",
    "age": "job.created_at",
    "due": "job.run_at",
    "finished": "job.finished_at",
    "priority": "job.priority",
    "attempt": "job.attempt",
}
# As `core.job.cause_of` makes it. An entry that cannot be read is an error of no type, at no place.
_CAUSE: Final = """(
    select job.task || ':' || case when json_valid(last.entry) then coalesce(
        nullif(json_extract(last.entry, '$.type'), ''), json_extract(last.entry, '$.kind'), 'error'
    ) || ':' || coalesce(json_extract(last.entry, '$.place'), '') else 'error:' end
    from treadle_job_error as last
    where last.seq = job.seq and last.n = job.error_count
)"""
# The jobs that one job has made, by their own index: its conditions are these, word for word.
_CHILDREN: Final = """
select seq from treadle_job indexed by treadle_job_parent
where
    instr(meta, '"treadle:parent"') and json_valid(meta)
    and json_extract(meta, '$."treadle:parent"') = ?
"""
# The states in which a condition can hold at all.
_STATES_OF: Final = {
    "retrying": frozenset({"scheduled"}),
    "stuck": frozenset({"running"}),
    "due": frozenset({"ready"}),
    "cancelling": frozenset({"running"}),
    "poison": frozenset({"failed"}),
}


class Condition(Struct, frozen=True):
    """A part of a WHERE clause about `treadle_job as job`."""

    sql: str
    parameters: tuple[Any, ...] = ()


class Terms(Struct, frozen=True):
    """A filter, taken apart."""

    conditions: tuple[Condition, ...]
    rest: Filter  # what only Python can test
    states: frozenset[str]  # where matches can be
    queues: tuple[str, ...] | None  # in which queues; None: in all
    task: str | None  # of which task; None: of any
    priorities: tuple[Interval, ...] | None  # with which priorities; None: with any
    finished: Condition | None  # when all candidates have ended
    retrying: bool  # all candidates that are scheduled wait for their retry
    poison: bool  # all candidates have failed after a crash
    named: tuple[Condition, ...]  # statements for the row numbers of all candidates, by their id or a tag
    tag: str | None  # candidates must be taken from those with this tag: no condition tests it
    by_place: bool  # an index alone tells who matches


def take_apart(filter: Filter, clock: Clock) -> Terms:
    now = clock.now()
    conditions: list[Condition] = []
    rest: list[Term] = []
    states = frozenset(state.value for state in State)
    queues: tuple[str, ...] | None = None
    named: list[Condition] = []
    task = tag = finished = None
    priorities: tuple[Interval, ...] | None = None
    retrying = poison = False
    for term in filter.terms:
        if tag is None and term.key == "tag" and not term.negated and _only(term) is not None:
            tag = _only(term)  # the candidates come from it: it need not be tested
            continue
        condition = _condition(term, clock, now)
        if condition is None:
            rest.append(term)
            conditions += _implied(term)
        else:
            conditions.append(condition)
        if term.negated:
            if term.key == "state":
                states -= {value.text for value in term.values}
        elif term.key == "state":
            states &= {value.text for value in term.values}
        elif term.key == "is":
            states &= frozenset[str]().union(*(_STATES_OF.get(value.text, states) for value in term.values))
        elif term.key == "cause":
            states &= {"failed", "scheduled"}
            retrying = True
        elif term.key == "queue" and all(value.op == "" for value in term.values):
            queues = tuple({value.text for value in term.values})
        elif term.key in ("id", "tag"):
            named.append(_named(term))
        elif term.key == "parent" and all(value.op == "" for value in term.values):
            named.append(Condition(" union ".join([_CHILDREN] * len(term.values)), _texts(term)))
        elif term.key == "finished":
            states &= ENDED
            finished = condition
        elif term.key == "priority":
            priorities = tuple(filters.interval("priority", value, now) for value in term.values)
        elif term.key == "task":
            task = _only(term) or task
        retrying = retrying or (term.key == "is" and not term.negated and _only(term) == "retrying")
        poison = poison or (term.key == "is" and not term.negated and _only(term) == "poison")
    by_place = all(_is_of_place(term, states) for term in filter.terms)
    return Terms(
        tuple(conditions),
        Filter(tuple(rest)),
        states,
        queues,
        task,
        priorities,
        finished,
        retrying,
        poison,
        tuple(named),
        tag,
        by_place,
    )


def _only(term: Term) -> str | None:
    """The one value that is written out."""
    return term.values[0].text if len(term.values) == 1 and term.values[0].op == "" else None


def _is_of_place(term: Term, states: frozenset[str]) -> bool:
    """Whether the index of the states in question has all that the term asks for."""
    if term.key == "state":
        return True
    if term.negated:
        return False
    if term.key in ("task", "priority", "due"):
        return (term.key != "task" or _only(term) is not None) and states <= {"ready", "scheduled"}
    if term.key == "is":
        return _only(term) in ("due", "retrying", "stuck", "poison")
    return term.key in ("queue", "finished")


def _texts(term: Term) -> tuple[str, ...]:
    return tuple(value.text for value in term.values)


def _named(term: Term) -> Condition:
    table = "treadle_job" if term.key == "id" else "treadle_job_tag"
    names = [_name(term.key, value) for value in term.values]
    return Condition(
        " union ".join(f"select seq from {table} where {name.sql}" for name in names),
        tuple(parameter for name in names for parameter in name.parameters),
    )


def joined(conditions: Sequence[Condition]) -> Condition:
    """All of them."""
    if not conditions:
        return Condition("true")
    parameters = tuple(parameter for condition in conditions for parameter in condition.parameters)
    return Condition(" and ".join(condition.sql for condition in conditions), parameters)


def _condition(term: Term, clock: Clock, now: float) -> Condition | None:
    parts = [_value(term.key, value, clock, now) for value in term.values]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    parameters = tuple(parameter for part in known for parameter in part.parameters)
    any_of = " or ".join(f"({part.sql})" for part in known)
    return Condition(f"({any_of}) is not true" if term.negated else f"({any_of})", parameters)


def _implied(term: Term) -> list[Condition]:
    """What must hold wherever the term does: the database passes over the other rows, and Python never sees them."""
    root = term.key.partition(".")[0]
    if term.negated:
        return []
    if root == "error":
        return [Condition("job.error_count > 0")]
    if root == "reason":
        return [Condition("job.reason is not null")]
    if root in ("parent", "schedule", "flow"):
        return [Condition("job.meta is not null")]
    if root in ("args", "meta", "result") and all(_is_spelt(value) for value in term.values):
        found = " or ".join([f"instr(job.{root}, ?)"] * len(term.values))
        return [Condition(f"({found})", tuple(value.text for value in term.values))]
    return []


def _is_spelt(value: Value) -> bool:
    """Whether a match has these very characters in its JSON: not numbers with a fraction, not what JSON escapes."""
    return value.op in ("", "*") and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*|[1-9][0-9]{0,14}", value.text) is not None


def _value(key: str, value: Value, clock: Clock, now: float) -> Condition | None:
    if key in _COLUMNS:
        return _name(_COLUMNS[key], value)
    if key in _MEASURES:
        return _within(_MEASURES[key], filters.interval(key, value, now))
    if key == "tag":
        if value.op == "":
            return tagged(value.text)
        name = _name("tag", value)
        return Condition(f"job.seq in (select seq from treadle_job_tag where {name.sql})", name.parameters)
    if key == "cause":
        return _cause(value, now)
    if key == "state":
        return in_state(value.text, now)
    if key == "is":
        return _is(value.text, clock, now)
    return None


def tagged(tag: str) -> Condition:
    return Condition(
        "exists (select 1 from treadle_job_tag as named where named.tag = ? and named.seq = job.seq)", (tag,)
    )


def _name(column: str, value: Value) -> Condition:
    if value.op != "*":
        return Condition(f"{column} = ?", (value.text,))
    if not value.text:
        return Condition(f"{column} is not null")
    # Not LIKE, where case does not count, and not GLOB, where [ and ? mean something.
    beyond = value.text + chr(sys.maxunicode)
    return Condition(
        f"({column} between ? and ? and substr({column}, 1, ?) = ?)", (value.text, beyond, len(value.text), value.text)
    )


def _cause(value: Value, now: float) -> Condition:
    """Of what failed or waits for a retry, and of those whose task it can be: the last error is read as JSON, which
    costs most."""
    has_one = "(job.state = 'failed' or (job.state = 'ready' and job.attempt > 0 and job.run_at > ?))"
    has_one = f"{has_one} and job.error_count > 0"
    whole = _name(_CAUSE, value)
    if value.op == "*":
        return Condition(f"{has_one} and {whole.sql}", (now, *whole.parameters))
    own_task = "substr(?, 1, length(job.task) + 1) = job.task || ':'"
    return Condition(f"{has_one} and {own_task} and {whole.sql}", (now, value.text, *whole.parameters))


def _within(column: str, bounds: Interval) -> Condition:
    low, high = (">=" if bounds.with_low else ">"), ("<=" if bounds.with_high else "<")
    return Condition(f"{column} {low} ? and {column} {high} ?", (bound(bounds.low), bound(bounds.high)))


def bound(number: float) -> float:
    """A number to compare a column with. An int of more than 64 bits cannot be bound; as a float it compares alike with
    whatever a column holds."""
    return number if -_HIGHEST <= number <= _HIGHEST else float(number)


def in_state(state: str, now: float) -> Condition:
    """A state as people read it: what is not due yet is scheduled. Written out where it is one of ours: in an index of
    that state's jobs nobody then looks at their rows."""
    if state == "ready":
        return Condition("job.state = 'ready' and job.run_at <= ?", (now,))
    if state == "scheduled":
        return Condition("job.state = 'ready' and job.run_at > ?", (now,))
    return Condition(f"job.state = '{state}'") if state in filters.STATES else Condition("job.state = ?", (state,))


def _is(condition: str, clock: Clock, now: float) -> Condition:
    match condition:
        case "retrying":
            return Condition("job.state = 'ready' and job.run_at > ? and job.attempt > 0", (now,))
        case "stuck":
            live = "select id from treadle_pod where not lost and boot = ? and lease_until > ?"
            return Condition(
                f"job.state = 'running' and (job.pod is null or job.pod not in ({live}))",
                (clock.boot(), clock.steady()),
            )
        case "due":
            return Condition("job.state = 'ready' and job.run_at <= ?", (now,))
        case "cancelling":
            return Condition("job.state = 'running' and job.cancel_wanted")
        case "poison":
            # `> 0` says nothing more: it leads to the index of jobs that failed after a crash.
            return Condition("job.state = 'failed' and job.crashes > 0 and job.crashes >= ?", (POISON_CRASHES,))
        case _:
            return Condition("job.throttles > 0")
