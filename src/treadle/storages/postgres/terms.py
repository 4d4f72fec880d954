"""A Filter as SQL: what the database can test by itself, and what is left for `core.filter.matches`.

Texts of the operator go into parameters, never into the SQL. Each condition says exactly what `matches` says, so a
negated term is one that is *not true*, also where a column is null. The same condition is put to both tables, under the
name `job`; where they differ (an ended job wants no cancel, a live one has no end), a macro stands for the column.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...core import filter as filters
from ...core.filter import Filter, Interval, Term, Value
from ...core.job import POISON_CRASHES, State
from .cluster import Time

ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
_COLUMNS: Final = {
    "id": "job.id::text",
    "queue": "job.queue",
    "task": "job.task",
    "unique": "job.unique_key",
    "pod": "job.pod",
    "cause": "{cause}",
}
_TIMES: Final = {
    "created": "job.created_at",
    "age": "job.created_at",
    "due": "job.run_at",
    "finished": "{finished_at}",
}
_NUMBERS: Final = {"priority": "job.priority", "attempt": "job.attempt"}
# Written as a range, so that the order below is not taken for that of the end alone: that has an index, too, and a
# planner that takes it passes over all that has succeeded.
RARE: Final = "job.state >= '{state}' and job.state <= '{state}' and job.state <> 'succeeded'"
RARE_NEWEST: Final = "job.state desc, job.finished_at desc"
# What an index has: of live jobs the order of the lanes, of ended ones when they ended.
_KINDS: Final = {"queue": "lanes", "priority": "lanes", "due": "due", "finished": "ended"}
# The states in which a condition can hold at all.
_STATES_OF: Final = {
    "retrying": frozenset({"scheduled"}),
    "stuck": frozenset({"running"}),
    "due": frozenset({"ready"}),
    "cancelling": frozenset({"running"}),
    "poison": frozenset({"failed"}),
}


class Where(Struct):
    """A WHERE clause in the making. The first three parameters are the time: now, steady, boot."""

    parts: list[str]
    parameters: list[Any]

    def add(self, value: Any) -> str:
        self.parameters.append(value)
        return f"${len(self.parameters)}"


class Terms(Struct, frozen=True):
    """A filter, taken apart."""

    where: Where
    rest: Filter  # what only Python can test
    states: frozenset[str]  # where matches can be
    ids: tuple[str, ...] | None  # all candidates, if ids are given
    tags: tuple[str, ...] | None  # one of these is on every candidate
    causes: tuple[str, ...] | None  # every candidate failed, or is tried again, for one of these
    parents: tuple[str, ...] | None = None  # one of these has made every candidate
    lanes: tuple[str, ...] = ()  # of the conditions, those on what a lane is: queue and priority
    due: tuple[str, ...] = ()  # those on run_at
    ended: tuple[str, ...] = ()  # those on finished_at
    finished: str = ""  # one of those, if it must hold
    since: float = -math.inf  # none was made earlier, so that none has ended earlier
    in_lanes: bool = False  # nothing is asked of a claimable job but what the order of the lanes tells
    by_age: bool = False  # what is asked of a claimable job has nothing to do with lanes
    queue: tuple[str, str] | None = None  # the name of the one queue, and the condition that says so
    queues: tuple[str, ...] | None = None  # nothing is asked but the state, and one of these queues if there are any
    keys: frozenset[str] = frozenset()  # what is asked of
    has_cause: bool = False  # every candidate failed, or is tried again, for some cause that is asked for
    narrowed: bool = False  # the conditions name the candidates one by one


def narrowed(parts: Terms, source: str, given: list[str] | None = None) -> Terms:
    """Only those whose ids the statement has. In it, {0} is what is given, if anything is."""
    where = Where([*parts.where.parts], [*parts.where.parameters])
    where.parts.append(f"job.id in ({source if given is None else source.replace('{0}', where.add(given))})")
    return msgspec.structs.replace(parts, where=where, narrowed=True)


# Every parameter must be named somewhere, or the server cannot know its type.
_ALL_NAMED: Final = "($1::float8 is null or $2::float8 is null or $3::text is null or true)"
NOW: Final = "coalesce(to_timestamp($1::float8), statement_timestamp())"
_STEADY: Final = "coalesce(to_timestamp($2::float8), clock_timestamp())"


def live(sql: str) -> str:
    """The condition, as it reads for live jobs."""
    sql = sql.replace("{finished_at}", "null::timestamptz").replace("{cause}", "null::text")
    sql = sql.replace("{retrying}", f"(job.state = 'ready' and job.run_at > {NOW} and job.attempt > 0)")
    return sql.replace("{cancel_wanted}", "job.cancel_wanted")


def ended(sql: str) -> str:
    sql = sql.replace("{finished_at}", "job.finished_at").replace("{cause}", "job.cause")
    return sql.replace("{retrying}", "false").replace("{cancel_wanted}", "false")


def take_apart(filter: Filter, time: Time, now: float) -> Terms:
    where = Where([_ALL_NAMED], [*time])
    rest: list[Term] = []
    states = _states(filter)
    ids: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    causes: tuple[str, ...] | None = None
    parents: tuple[str, ...] | None = None
    queue: tuple[str, str] | None = None
    has_cause = False
    finished = ""
    since = -math.inf
    kinds: dict[str, list[str]] = {"lanes": [], "due": [], "ended": []}
    for term in filter.terms:
        # The cause of a live job stands in its last error, which is JSON: a damaged one must not end the statement.
        by_python = term.key == "cause" and not states <= ENDED
        condition = None if by_python else _condition(where, term, now)
        if condition is None:
            rest.append(term)
            where.parts += _implied(where, term)
        else:
            where.parts.append(condition)
            if kind := _KINDS.get(term.key):
                kinds[kind].append(condition)
                if term.key == "queue" and not term.negated and len(term.values) == 1 and not term.values[0].op:
                    queue = (term.values[0].text, condition)
            elif term.key in ("created", "age") and not term.negated:
                since = max(since, min(filters.interval(term.key, value, now).low for value in term.values))
        if term.negated:
            continue
        if term.key == "finished":
            finished = condition or finished
        elif term.key == "id" and all(value.op == "" for value in term.values):
            named = tuple(value.text for value in term.values)
            ids = named if ids is None else tuple(set(ids) & set(named))
        elif term.key == "tag" and all(value.op == "" for value in term.values):
            tags = tuple(value.text for value in term.values)
        elif term.key == "parent" and all(value.op == "" for value in term.values):
            parents = tuple(value.text for value in term.values)
        elif term.key == "cause":
            has_cause = True
            if all(value.op == "" for value in term.values):
                causes = tuple(value.text for value in term.values)
    return Terms(
        where,
        Filter(tuple(rest)),
        states,
        ids,
        tags,
        causes,
        parents,
        lanes=tuple(kinds["lanes"]),
        due=tuple(kinds["due"]),
        ended=tuple(kinds["ended"]),
        finished=finished,
        since=since,
        in_lanes=all(_is_in_lanes(term) for term in filter.terms),
        by_age=not kinds["lanes"] and not all(term.key == "is" or _is_in_lanes(term) for term in filter.terms),
        queue=queue,
        queues=_queues(filter),
        keys=frozenset(term.key for term in filter.terms),
        has_cause=has_cause,
    )


def _states(filter: Filter) -> frozenset[str]:
    """The states in which a match can be."""
    states = frozenset(state.value for state in State)
    for term in filter.terms:
        if term.negated:
            if term.key == "state":
                states -= {value.text for value in term.values}
        elif term.key == "state":
            states &= {value.text for value in term.values}
        elif term.key == "is":
            states &= frozenset[str]().union(*(_STATES_OF.get(value.text, states) for value in term.values))
        elif term.key == "finished":
            states &= ENDED
        elif term.key == "cause":
            states &= {"failed", "scheduled"}
    return states


def _is_in_lanes(term: Term) -> bool:
    if term.key == "is":
        return not term.negated and all(value.text == "due" for value in term.values)
    return term.key in ("state", "queue", "priority", "due")


def _queues(filter: Filter) -> tuple[str, ...] | None:
    """The queues that are asked for, if nothing else is but states; none are all of them."""
    named = [term for term in filter.terms if term.key != "state"]
    if not named:
        return ()
    if len(named) != 1 or named[0].key != "queue" or named[0].negated or any(each.op for each in named[0].values):
        return None
    return tuple(value.text for value in named[0].values)


def _condition(where: Where, term: Term, now: float) -> str | None:
    parts = [_value(where, term.key, value, now) for value in term.values]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    any_of = " or ".join(f"({part})" for part in known)
    return f"({any_of}) is not true" if term.negated else f"({any_of})"


def _implied(where: Where, term: Term) -> list[str]:
    """What must hold wherever the term does: the database passes over the other rows, and Python never sees them."""
    root = term.key.partition(".")[0]
    if term.negated:
        return []
    if root == "error":
        return ["job.error_count > 0"]
    if root == "cause":
        return ["job.error_count > 0", f"({' or '.join(_cause(where, value) for value in term.values)})"]
    if root == "reason":
        return ["job.reason is not null"]
    if root in ("parent", "schedule", "flow"):
        return ["job.meta is not null"]
    if root in ("args", "meta") and all(_is_spelt(value) for value in term.values):
        found = " or ".join(f"strpos(job.{root}, {where.add(value.text)}::text) > 0" for value in term.values)
        return [f"({found})"]
    return []


def _cause(where: Where, value: Value) -> str:
    """What failed for this cause, and what waits for its retry and is of a task that the cause can be of."""
    retrying = "{retrying}"
    if value.op == "":
        retrying += f" and starts_with({where.add(value.text)}::text, job.task || ':')"
    return f"({_name(where, _COLUMNS['cause'], value)}) or ({retrying})"


def _is_spelt(value: Value) -> bool:
    """Whether a match has these very characters in its JSON: not numbers with a fraction, not what JSON escapes."""
    return value.op in ("", "*") and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*|[1-9][0-9]{0,14}", value.text) is not None


def _value(where: Where, key: str, value: Value, now: float) -> str | None:
    if key in _COLUMNS:
        return _name(where, _COLUMNS[key], value)
    if key in _TIMES:
        return _within(where, _TIMES[key], filters.interval(key, value, now), time=True)
    if key in _NUMBERS:
        return _within(where, _NUMBERS[key], filters.interval(key, value, now), time=False)
    if key == "tag":
        if value.op != "*":
            return f"job.tags @> array[{where.add(value.text)}::text]"
        return f"exists (select from unnest(job.tags) as tag where {_name(where, 'tag', value)})"
    if key == "state":
        return in_state(value.text)
    if key == "is":
        return _is(value.text)
    return None


def _name(where: Where, column: str, value: Value) -> str:
    if value.op != "*":
        return f"{column} = {where.add(value.text)}::text"
    if not value.text:
        return f"{column} is not null"
    # Not LIKE, where _ and % mean something.
    return f"starts_with({column}, {where.add(value.text)}::text)"


def _within(where: Where, column: str, bounds: Interval, *, time: bool) -> str:
    low, high = (">=" if bounds.with_low else ">"), ("<=" if bounds.with_high else "<")
    parts = [f"{column} is not null"]
    for sign, bound in ((low, bounds.low), (high, bounds.high)):
        if math.isfinite(bound):
            place = f"{where.add(bound)}::float8"
            parts.append(f"{column} {sign} {f'to_timestamp({place})' if time else place}")
    return " and ".join(parts)


def in_state(state: str) -> str:
    """A state as people read it: what is not due yet is scheduled."""
    if state == "ready":
        return f"job.state = 'ready' and job.run_at <= {NOW}"
    if state == "scheduled":
        return f"job.state = 'ready' and job.run_at > {NOW}"
    assert state in {each.value for each in State}
    return f"job.state = '{state}'"


def _is(condition: str) -> str:
    match condition:
        case "retrying":
            return f"job.state = 'ready' and job.run_at > {NOW} and job.attempt > 0"
        case "stuck":
            return (
                "job.state = 'running' and not exists (select from treadle.pod as p where p.id = job.pod "
                f"and not p.lost and not p.gone and p.boot = $3::text and p.lease_until > {_STEADY})"
            )
        case "due":
            return f"job.state = 'ready' and job.run_at <= {NOW}"
        case "cancelling":
            return "job.state = 'running' and {cancel_wanted}"
        case "poison":
            return f"job.state = 'failed' and job.crashes >= {POISON_CRASHES}"
        case _:
            return "job.throttles > 0"
