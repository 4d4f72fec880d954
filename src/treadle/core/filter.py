"""What the operator asked for: one language for dashboard, command line, HTTP and Python.

    filter = [ term { space term } ]                    all terms must hold
    term   = [ "-" ] ( key ":" value { "," value }      comma = any of them, - = not
                     | text )                           free text: task, error, tags, reason
    key    = word { "." word }                          args.user.id, meta.tenant
    value  = [ ">" | ">=" | "<" | "<=" ] atom | atom ".." atom
    atom   = word [ "*" ] | '"' { any char, \\" and \\\\ escaped } '"' [ "*" ]      * = prefix

A Filter keeps what was written, with quotes and spaces made canonical, and parsing has checked every value. What a
value means depends on the clock, so it is asked for: `interval` turns a time, number or duration into the bounds that
both `matches` and a storage's SQL compare with. `matches` is the reference: storages must agree with it.

What the values mean:

- Names (`id queue task tag cause unique parent schedule flow pod`) are equal, or start with the prefix. Case counts.
  A lone `*` means "any": `unique:*` are the jobs that have a unique key. Only a job that failed or
  waits for its retry has a `cause`: task:exception:place.
- `created:2026-11-15` is that day in UTC; `>` is after it, `<=` until its end. A date-time needs a zone.
- A relative time is a distance from now. `created` and `finished` look back: `finished:<1h` ended within the last
  hour, `created:>2h` was made more than two hours ago, `finished:1h..2h` ended between one and two hours ago.
  `age` is the same distance for `created`: `age:>1h` is older than an hour. `due` looks ahead: `due:<10m` falls due
  within the next ten minutes (and is not due yet: that is `is:due`), `due:>1d` more than a day from now.
- `wait` is the time from due until start: of the last run, or until now for a ready job. `run` is how long the last
  run took, or has taken until now. A job that has no such time matches neither `<` nor `>`.
- `is:retrying` is scheduled after at least one attempt; `stuck` runs under a lease that is over; `due` could start
  now; `cancelling` runs, and a cancel is wanted; `poison` failed because it crashed its pods; `throttled` was
  throttled at least once.
- `error`, `reason` and free text look for a part of the text, in any case; with `*`, for its beginning.
- `args.a.b`, `meta.a`, `result.a` follow keys and list positions. A list matches if one of its elements does. A value
  that reads as a number also equals numbers; `>` and `..` compare numbers only. `true`, `false` and `null` are words.
- A negated term holds exactly when the term does not, also for a job that has no such field.
- `as:shown` is about the other terms: `error`, `reason`, free text and strings below `args`, `meta` and `result` are
  compared as they are shown to people, with a mask for what looks like a secret. See `filter_sight`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from . import duration
from .errors import FilterError
from .job import POISON_CRASHES, State
from .names import suggest

LONGEST: Final = 2_000
MOST_TERMS: Final = 50
MOST_VALUES: Final = 100

Op: TypeAlias = Literal["", "*", ">", ">=", "<", "<=", ".."]
Kind: TypeAlias = Literal["name", "state", "is", "time", "age", "number", "span", "text", "json", "as"]

STATES: Final = tuple(state.value for state in State)
CONDITIONS: Final = ("retrying", "stuck", "due", "cancelling", "poison", "throttled")

_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("id", "queue", "task", "tag", "cause", "unique", "parent", "schedule", "flow", "pod"), "name"),
    **dict.fromkeys(("created", "due", "finished"), "time"),
    **dict.fromkeys(("priority", "attempt"), "number"),
    **dict.fromkeys(("wait", "run"), "span"),
    **dict.fromkeys(("error", "reason"), "text"),
    "state": "state",
    "is": "is",
    "age": "age",
    "as": "as",
}
JSON_ROOTS: Final = ("args", "meta", "result")
_ORDERED: Final = frozenset({"time", "age", "number", "span"})
_ROOTS: Final = (*_KINDS, *JSON_ROOTS)
INDEXED: Final = frozenset(key for key, kind in _KINDS.items() if kind in ("name", "state", "is", "time", "age"))
"""The keys that a storage aims to answer by an index; the others look at the newest rows only."""

_EXAMPLES: Final[dict[Kind, str]] = {
    "time": "2026-11-15, 2026-11-01..2026-11-15 or >2h",
    "age": ">1h or 1h..2d",
    "number": "3, >3 or 1..3",
    "span": ">30s or 1m..1h30m",
}

_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DATED: Final = re.compile(r"[0-9]{4}-")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK: Final = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_MOMENT: Final = re.compile(rf"{_DAY.pattern}T{_CLOCK}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})")
_DAY_LENGTH: Final = 86_400.0
_LEAST: Final = 1e-6
_CALENDAR: Final = (-62_135_596_800.0, 253_402_214_400.0)  # the first day of year 1, the last of 9999

_KEY: Final = re.compile(r'([^\s":]*):')
_FREE_WORD: Final = re.compile(r'[^\s":]+')
_WORD: Final = re.compile(r'[^\s",]+')
_RANGE_WORD: Final = re.compile(r'(?:(?!\.\.)[^\s",])+')
_NUMBER_RANGE: Final = re.compile(rf"{_NUMBER.pattern}\.\.{_NUMBER.pattern}(?=[\s,]|\Z)")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*+)"')
_ESCAPED: Final = re.compile(r"\\(.)")
_COMPARISON: Final = re.compile(r">=|<=|>|<")
_POSITION: Final = re.compile(r"[0-9]{1,9}")
_WORDS: Final = {None: "null", True: "true", False: "false"}
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class Value(Struct, frozen=True):
    """One alternative of a term, as written: `op` is "" for equal, "*" for prefix, ".." for `text` up to `upper`."""

    text: str
    op: Op = ""
    upper: str = ""


class Term(Struct, frozen=True):
    """One condition: any of its values, or none of them if it is negated. The key "" is free text."""

    key: str
    values: tuple[Value, ...]
    negated: bool = False

    def __str__(self) -> str:
        written = ",".join(_write(self.key, value) for value in self.values)
        return f"{'-' if self.negated else ''}{f'{self.key}:' if self.key else ''}{written}"


AS_SHOWN: Final = Term("as", (Value("shown"),))


class Filter(Struct, frozen=True):
    """All its terms must hold; without terms, it is every job. `parse(str(filter)) == filter`."""

    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        return " ".join(str(term) for term in self.terms)


class Interval(Struct, frozen=True):
    """Bounds to compare with: instants (seconds since the epoch), seconds or plain numbers, by the key."""

    low: float = -math.inf
    high: float = math.inf
    with_low: bool = True
    with_high: bool = True

    def __contains__(self, number: float) -> bool:
        above = number >= self.low if self.with_low else number > self.low
        return above and (number <= self.high if self.with_high else number < self.high)


class Row(Struct, frozen=True, kw_only=True):
    """What a filter sees of a job. `state` is as people read it: a scheduled job that is due is `ready`."""

    id: str
    state: str
    queue: str
    task: str
    priority: int
    attempt: int
    created_at: float
    run_at: float
    started_at: float | None = None
    finished_at: float | None = None
    tags: tuple[str, ...] = ()
    cause: str | None = None
    unique_key: str | None = None
    pod: str | None = None
    parent: str | None = None
    schedule: str | None = None
    flow: str | None = None
    error_text: str | None = None
    reason: str | None = None
    args: Any = None
    meta: Any = None
    result: Any = None
    cancel_wanted: bool = False
    crashes: int = 0
    throttles: int = 0
    stuck: bool = False
    masked: bool = False  # strings in args, meta and result are compared as they are shown


def parse(text: str) -> Filter:
    """The Filter that the text describes, or a FilterError with the column and, if there is one, a suggestion.

    >>> str(parse('state:failed   task:"send_mail" -tag:test age:>1h'))
    'state:failed task:send_mail -tag:test age:>1h'
    """
    if len(text) > LONGEST:
        raise FilterError(f"a filter has at most {LONGEST:,} characters", LONGEST + 1)
    odd = _UNSTORABLE.search(text)
    if odd:
        raise FilterError("NUL and half of a surrogate pair are not allowed", odd.start() + 1)
    return _Parser(text).filter()


def matches(which: Filter, row: Row, now: float) -> bool:
    """Whether the job is among those that the filter describes, at `now` by the storage's clock."""
    if AS_SHOWN in which.terms:
        row = _as_shown(row)
    return all(any(_holds(term.key, value, row, now) for value in term.values) != term.negated for term in which.terms)


def interval(key: str, value: Value, now: float) -> Interval:
    """What a value of an ordered key stands for; ValueError if it stands for nothing.

    For `created`, `due`, `finished` and `age` the bounds are instants, to compare with created_at, run_at, finished_at
    and created_at. For the other keys they are numbers, or seconds.
    """
    read = _reader(key, value.text)
    if value.op == "*":
        raise ValueError("a prefix has no meaning here")
    start, end = read(value.text)
    if value.op == "" and read in (_length, _distance):
        raise ValueError("a duration needs a comparison or a range")
    point = start == end
    if value.op == "..":
        if _reader(key, value.upper) is not read:
            raise ValueError("a range has two dates or two durations")
        upper, end = read(value.upper)
        point = upper == end
        if upper < start:
            raise ValueError("the range ends before it begins")
    bounds = _bounds(value.op, start, end, point=point)
    return _around(now, bounds, ahead=key == "due") if read is _distance else bounds


def at(which: Filter, now: float) -> Filter:
    """The filter with every distance from now written as an instant: it goes on meaning what it means at `now`."""
    return Filter(tuple(_term_at(term, now) for term in which.terms))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def filter(self) -> Filter:
        terms: list[Term] = []
        while rest := self.text[self.at :].lstrip():
            self.at = len(self.text) - len(rest)
            if len(terms) == MOST_TERMS:
                raise self._error(f"a filter has at most {MOST_TERMS} terms")
            terms.append(self._term())
        return Filter(tuple(terms))

    def _term(self) -> Term:
        negated = self._take("-")
        if self._at_gap() or self.text.startswith("-", self.at):
            raise self._error("a term is missing after -; to look for a minus sign, put it in quotes")
        key = self._key()
        if key == "as" and negated:
            raise self._error("as is never negated: it says how the other terms compare")
        values = [self._value(key)]
        while key and self._take(","):
            if len(values) == MOST_VALUES:
                raise self._error(f"a term has at most {MOST_VALUES} values")
            values.append(self._value(key))
        if not self._at_gap():
            raise self._error(f"unexpected {_shown(self.text[self.at])}; put the whole value in quotes")
        return Term(key, tuple(values), negated)

    def _key(self) -> str:
        found = _KEY.match(self.text, self.at)
        if found is None:
            return ""
        key = found[1]
        root, _, path = key.partition(".")
        if root in JSON_ROOTS:
            if not all(path.split(".")):
                raise self._error(f"{root} needs a path, such as {root}.user.id")
        elif key not in _KINDS:
            meant = suggest(root, _ROOTS)
            hint = f"did you mean {_shown(meant)}?" if meant else "to look for this text, put it in quotes"
            raise self._error(f"unknown key {_shown(key)}; {hint}")
        self.at = found.end()
        return key

    def _value(self, key: str) -> Value:
        start = self.at
        value = self._keyed(_kind(key)) if key else self._atom(_FREE_WORD)
        try:
            _check(key, value)
        except ValueError as error:
            raise FilterError(str(error), start + 1) from None
        return value

    def _keyed(self, kind: Kind) -> Value:
        comparison = _COMPARISON.match(self.text, self.at)
        if comparison:
            self.at = comparison.end()
            operand = self._atom(_WORD)
            if operand.op:
                raise self._error("a comparison takes no prefix")
            return Value(operand.text, cast("Op", comparison[0]))
        # Names, paths and URLs may hold two dots: only where an order is meant are they a range.
        if kind not in _ORDERED and not (kind == "json" and _NUMBER_RANGE.match(self.text, self.at)):
            return self._atom(_WORD)
        low = self._atom(_RANGE_WORD)
        if not self._take(".."):
            return low
        high = self._atom(_RANGE_WORD)
        if low.op or high.op:
            raise self._error("a range takes no prefix")
        return Value(low.text, "..", high.text)

    def _atom(self, word: re.Pattern[str]) -> Value:
        if self.text.startswith('"', self.at):
            quoted = _QUOTED.match(self.text, self.at)
            if quoted is None:
                raise self._error(
                    r"the quotes are not closed; inside them, write \" for a quote and \\ for a backslash"
                )
            self.at = quoted.end()
            return Value(_ESCAPED.sub(r"\1", quoted[1]), "*" if self._take("*") else "")
        found = word.match(self.text, self.at)
        if found is None:
            raise self._error("a value is missing")
        self.at = found.end()
        return Value(found[0][:-1], "*") if found[0].endswith("*") else Value(found[0])

    def _take(self, sign: str) -> bool:
        taken = self.text.startswith(sign, self.at)
        self.at += len(sign) if taken else 0
        return taken

    def _at_gap(self) -> bool:
        return self.at == len(self.text) or self.text[self.at].isspace()

    def _error(self, message: str) -> FilterError:
        return FilterError(message, self.at + 1)


def _kind(key: str) -> Kind:
    return _KINDS.get(key, "json") if key else "text"


def _check(key: str, value: Value) -> None:
    kind = _kind(key)
    if kind in _ORDERED:
        try:
            interval(key, value, 0.0)
        except ValueError as error:
            raise ValueError(f"{error}; for example {key}:{_EXAMPLES[kind]}") from None
    elif kind == "json":
        if value.op not in ("", "*"):
            interval(key, value, 0.0)
    elif kind == "state":
        _check_word("state", value, STATES)
    elif kind == "is":
        _check_word("condition", value, CONDITIONS)
    elif kind == "as":
        _check_word("way to compare", value, ("shown",))
    elif value.op not in ("", "*"):
        raise ValueError(f"{key} has no order; to look for this text, put it in quotes")
    elif not value.text and not (key and value.op == "*"):
        raise ValueError("the text is empty")


def _check_word(what: str, value: Value, known: tuple[str, ...]) -> None:
    if value.op:
        raise ValueError(f"a {what} is written out, without prefix or comparison")
    if value.text not in known:
        meant = suggest(value.text, known)
        hint = f"did you mean {_shown(meant)}?" if meant else f"one of {' '.join(known)}"
        raise ValueError(f"unknown {what} {_shown(value.text)}; {hint}")


def _write(key: str, value: Value) -> str:
    if value.op == "..":
        return f"{_write_atom(key, value.text, '..')}..{_write_atom(key, value.upper, '..')}"
    atom = _write_atom(key, value.text, value.op)
    return f"{atom}*" if value.op == "*" else f"{value.op}{atom}"


def _write_atom(key: str, text: str, op: Op) -> str:
    """Bare if it would be read again as the same value, else in quotes: never longer than what was parsed."""
    kind = _kind(key)
    if key:
        bare = _WORD.fullmatch(text) is not None and not _COMPARISON.match(text)
    else:
        bare = _FREE_WORD.fullmatch(text) is not None and not text.startswith("-")
    if op == "":
        bare = bare and not text.endswith("*") and not (kind == "json" and _NUMBER_RANGE.fullmatch(text))
    if (bare and not (kind in _ORDERED and ".." in text)) or (op == "*" and not text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# A reader gives the stretch that an atom covers: a day has a length, everything else is a point.


def _reader(key: str, text: str) -> Callable[[str], tuple[float, float]]:
    kind = _kind(key)
    if kind in ("number", "json"):
        return _number
    if kind == "span":
        return _length
    return _date if kind == "time" and _DATED.match(text) else _distance


def _number(text: str) -> tuple[float, float]:
    number = _as_number(text)
    if number is None:
        raise ValueError(f"{_shown(text)} is not a number")
    return number, number


def _length(text: str) -> tuple[float, float]:
    try:
        length = duration.seconds(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a duration") from None
    return length, length


def _distance(text: str) -> tuple[float, float]:
    if _NUMBER.fullmatch(text):  # created:>2026 means a year to some, and seconds to nobody
        raise ValueError(f"{_shown(text)} needs a unit, such as {_shown(f'{text[:12]}s')}")
    return _length(text)


def _date(text: str) -> tuple[float, float]:
    try:
        if _DAY.fullmatch(text):
            start = datetime.fromisoformat(f"{text}T00:00:00+00:00").timestamp()
            return start, start + _DAY_LENGTH
        if _MOMENT.fullmatch(text):
            instant = datetime.fromisoformat(text).timestamp()
            return instant, instant
    except ValueError:
        raise ValueError(f"{_shown(text)} is not in the calendar") from None
    raise ValueError(f"{_shown(text)} is not a date, nor a date-time with a zone such as 2026-11-15T09:00:00Z")


def _as_number(text: str) -> float | None:
    """An int stays an int: as a float, 2**53 + 1 would equal its neighbour."""
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    if not math.isfinite(number):
        return None
    return int(text) if text.lstrip("-").isdigit() else number


def _bounds(op: Op, start: float, end: float, *, point: bool) -> Interval:
    """The stretch ends with a point, which belongs to it, or with the end of a day, which is the next day already."""
    match op:
        case ">":
            return Interval(low=end, with_low=not point)
        case ">=":
            return Interval(low=start)
        case "<":
            return Interval(high=start, with_high=False)
        case "<=":
            return Interval(high=end, with_high=point)
        case _:
            return Interval(start, end, with_high=point)


def _around(now: float, distance: Interval, *, ahead: bool) -> Interval:
    if not ahead:
        return Interval(now - distance.high, now - distance.low, distance.with_high, distance.with_low)
    if distance.low < 0:
        return Interval(now, now + distance.high, False, distance.with_high)
    return Interval(now + distance.low, now + distance.high, distance.with_low, distance.with_high)


def _term_at(term: Term, now: float) -> Term:
    if _kind(term.key) not in ("time", "age"):
        return term
    key = "created" if term.key == "age" else term.key
    return Term(key, tuple(_value_at(term.key, value, now) for value in term.values), term.negated)


def _value_at(key: str, value: Value, now: float) -> Value:
    if _reader(key, value.text) is not _distance:
        return value
    bounds = interval(key, value, now)
    if bounds.high == math.inf:
        return Value(_moment(bounds.low), ">=" if bounds.with_low else ">")
    if bounds.low == -math.inf:
        return Value(_moment(bounds.high), "<=" if bounds.with_high else "<")
    # A range has both its ends in it: one that is left out is moved by the least that an instant can be told apart by.
    low = bounds.low if bounds.with_low else bounds.low + _LEAST
    high = bounds.high if bounds.with_high else bounds.high - _LEAST
    return Value(_moment(low), "..", _moment(max(low, high)))


def _moment(instant: float) -> str:
    moment = datetime.fromtimestamp(min(max(instant, _CALENDAR[0]), _CALENDAR[1]), UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _holds(key: str, value: Value, row: Row, now: float) -> bool:
    match _kind(key):
        case "state":
            return row.state == value.text
        case "is":
            return _is(value.text, row, now)
        case "name":
            return any(_equals(value, name) for name in _names(key, row))
        case "as":
            return True  # it says how the others compare
        case "text":
            return any(_says(value, text) for text in _texts(key, row))
        case "json":
            return any(_fits(key, value, item) for item in _items(key, row))
        case _:
            measured = _measured(key, row, now)
            return measured is not None and measured in interval(key, value, now)


def _as_shown(row: Row) -> Row:
    """The row with masked texts. The type of an error is shown as it is: only its message is masked."""
    from . import redact  # compiling its patterns takes a millisecond, and an enqueue does not need them

    kind, colon, message = (row.error_text or "").partition(": ")
    return msgspec.structs.replace(
        row,
        error_text=None if row.error_text is None else f"{kind}{colon}{redact.text(message)}",
        reason=None if row.reason is None else redact.text(row.reason),
        masked=True,
    )


def _is(condition: str, row: Row, now: float) -> bool:
    match condition:
        case "retrying":
            return row.state == State.SCHEDULED and row.attempt > 0
        case "stuck":
            return row.stuck
        case "due":
            return row.state in (State.READY, State.SCHEDULED) and row.run_at <= now
        case "cancelling":
            return row.state == State.RUNNING and row.cancel_wanted
        case "poison":
            return row.state == State.FAILED and row.crashes >= POISON_CRASHES
        case _:
            return row.throttles > 0


def _measured(key: str, row: Row, now: float) -> float | None:
    match key:
        case "created" | "age":
            return row.created_at
        case "due":
            return row.run_at
        case "finished":
            return row.finished_at
        case "priority":
            return row.priority
        case "attempt":
            return row.attempt
        case "wait":
            return _waited(row, now)
        case _:
            return _ran(row, now)


def _waited(row: Row, now: float) -> float | None:
    if row.state == State.READY:
        return now - row.run_at
    return row.started_at - row.run_at if row.started_at is not None and _started_since_due(row) else None


def _ran(row: Row, now: float) -> float | None:
    ended_at = now if row.state == State.RUNNING else row.finished_at
    if ended_at is None or row.started_at is None or not _started_since_due(row):
        return None
    return ended_at - row.started_at


def _started_since_due(row: Row) -> bool:
    # A job that waits for its retry still shows when its last attempt started; that says nothing about this due time.
    return row.started_at is not None and row.started_at >= row.run_at


def _names(key: str, row: Row) -> tuple[object, ...]:
    match key:
        case "tag":
            return row.tags
        case "unique":
            return (row.unique_key,)
        case _:
            return (getattr(row, key),)


def _texts(key: str, row: Row) -> tuple[str | None, ...]:
    match key:
        case "error":
            return (row.error_text,)
        case "reason":
            return (row.reason,)
        case _:
            return (row.task, row.error_text, row.reason, *row.tags)


def _equals(value: Value, name: object) -> bool:
    return isinstance(name, str) and (name.startswith(value.text) if value.op == "*" else name == value.text)


def _says(value: Value, text: str | None) -> bool:
    if text is None:
        return False
    folded, wanted = text.casefold(), value.text.casefold()
    return folded.startswith(wanted) if value.op == "*" else wanted in folded


def _items(key: str, row: Row) -> Sequence[object]:
    """What is found at the path: nothing, one value, or the elements of a list."""
    root, *path = key.split(".")
    found: Sequence[object] = [getattr(row, root)]
    for step in path:
        found = _below(found[0], step) if found else found
    if found and isinstance(found[0], list):
        found = cast("Sequence[object]", found[0])
    if not row.masked:
        return found
    from . import redact

    return [redact.text(item) if isinstance(item, str) else item for item in found]


def _below(value: object, step: str) -> Sequence[object]:
    if isinstance(value, dict) and step in value:
        return [cast("Mapping[str, object]", value)[step]]
    if isinstance(value, list) and _POSITION.fullmatch(step):
        return cast("Sequence[object]", value)[int(step) : int(step) + 1]
    return []


def _fits(key: str, value: Value, item: object) -> bool:
    number = item if isinstance(item, int | float) and not isinstance(item, bool) else None
    if value.op not in ("", "*"):
        return number is not None and number in interval(key, value, 0.0)
    if value.op == "" and number is not None and number == _as_number(value.text):
        return True
    if item is None or isinstance(item, bool):
        return _equals(value, _WORDS[item])
    return _equals(value, item if number is None else str(number))


def _shown(text: str) -> str:
    return f'"{text if len(text) <= 40 else text[:40] + "…"}"'
