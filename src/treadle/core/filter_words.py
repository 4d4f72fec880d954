"""A filter in words, and the one that was probably meant: for who looks at an empty list and wonders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from .filter import Filter, Term, Value
from .names import suggest

_IS: Final[Mapping[str, str]] = {">": "more than ", ">=": "at least ", "<": "less than ", "<=": "at most "}
_AGO: Final = ("created", "finished")  # a span behind these is counted back from now
_TEXTS: Final = ("error", "reason")


def words(which: Filter) -> str:
    """What it asks for, as one would say it.

    >>> from treadle.core.filter import parse
    >>> words(parse("state:failed,cancelled task:send_* -tag:test age:>1h"))
    'state is failed or cancelled, task begins with send_, tag is not test, age is more than 1h'
    """
    return ", ".join(_term(term) for term in which.terms)


def nearest(which: Filter, known: Mapping[str, Collection[str]]) -> Filter | None:
    """The filter with names that nobody has replaced by those that look most alike; None if there is nothing to
    replace. `known`: by key, the names that there are."""
    terms = tuple(_mended(term, known.get(term.key, ())) for term in which.terms)
    found = Filter(terms)
    return None if found == which else found


def _term(term: Term) -> str:
    said = " or ".join(_value(term.key, value) for value in term.values)
    if not term.key:
        return f"{'no ' if term.negated else ''}text has {said}"
    if term.key == "as":
        return "with secrets masked"
    if term.key == "is":
        return f"is {'not ' if term.negated else ''}{said}"
    first = term.values[0]
    if len(term.values) == 1 and first.op == "*" and first.text:
        return f"{term.key} {'does not begin' if term.negated else 'begins'} with {first.text}"
    does = "has" if term.key in _TEXTS else "is"
    return f"{term.key} {does} {'not ' if term.negated else ''}{said}"


def _value(key: str, value: Value) -> str:
    match value.op:
        case "*":
            return f"begins with {value.text}" if value.text else "any"
        case "..":
            return f"from {value.text} to {value.upper}"
        case "":
            return value.text or '""'
        case op:
            ago = " ago" if key in _AGO and not value.text[:5].endswith("-") else ""
            return f"{_IS[op]}{value.text}{ago}"


def _mended(term: Term, names: Collection[str]) -> Term:
    if not names:
        return term
    values = tuple(
        Value(near) if value.op == "" and value.text not in names and (near := suggest(value.text, names)) else value
        for value in term.values
    )
    return Term(term.key, values, term.negated)
