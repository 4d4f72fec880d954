"""When a schedule fires: cron lines and intervals, and what a time zone makes of them.

cronsim reads a line and walks the wall times that match it, forwards and back. It walks them without a zone here, and
the zone is laid over them by the rules below: cronsim's own rules for zones leave out lines with seconds, and differ
when it walks backwards.

* A **fixed** line (neither its minute nor its hour begins with `*`) means wall times. One that occurs twice counts
  once, the first time; one that a change of the clocks skips counts as the first instant after the gap; what falls on
  the same instant is one fire.
* An **elapsed** line (its minute or its hour begins with `*`) means every instant at which the wall clock shows a
  matching time: both passes of a repeated hour, and nothing for a skipped one.
* An **interval** means anchor + k · interval, whatever the wall clock shows.

Fires are found from either end, so that the newest one costs the same however long nobody looked.
"""

from __future__ import annotations

import functools
import math
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from . import duration, names

KIN: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
SHORTEST_INTERVAL: Final = 1.0
LONGEST_TEXT: Final = 256

_EXAMPLE: Final = 'for example "0 9 * * MON-FRI", "@hourly" or "every 10m"'
_EVERY: Final = "every "
_FIELDS: Final = ("minute", "hour", "day of month", "month", "day of week")
_ONE_SECOND: Final = timedelta(seconds=1)
# Offsets are compared at this step, and the change between two of them is then narrowed down. No zone has ever gone
# forth and back within it.
_STEP: Final = 6 * 3600


class Line(Struct, frozen=True):
    """A cron line of five fields, or six with the seconds first, as cronsim reads it."""

    text: str
    elapsed: bool


class Interval(Struct, frozen=True):
    seconds: float


Expression: TypeAlias = Line | Interval


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """What the text means; ValueError, with what is wrong, if it can mean nothing or would never fire."""
    words = " ".join(text.split()) if len(text) <= LONGEST_TEXT else ""
    if not words:
        raise ValueError(f"a schedule needs an expression of 1 to {LONGEST_TEXT} characters, {_EXAMPLE}")
    if words.lower().startswith(_EVERY):
        return Interval(interval(words[len(_EVERY) :]))
    if words.startswith("@"):
        if words.lower() not in KIN:
            raise ValueError(f"{words!r} is not known: one of {', '.join(KIN)}")
        words = KIN[words.lower()]
    fields = words.split(" ")
    if len(fields) not in (5, 6):
        raise ValueError(f"{words!r} has {len(fields)} fields: five, or six with the seconds first, {_EXAMPLE}")
    try:
        first = next(CronSim(words, datetime(2000, 1, 1)), None)  # noqa: DTZ001 - wall times have no zone
    except CronSimError as error:
        raise ValueError(f"{words!r}: {_told(error, fields)}, {_EXAMPLE}") from None
    if first is None:
        raise ValueError(f"{words!r} would never fire: no such date comes in fifty years")
    minute, hour = fields[-5], fields[-4]
    return Line(words, elapsed=minute.startswith("*") or hour.startswith("*"))


def _told(error: CronSimError, fields: list[str]) -> str:
    """cronsim names the field; people also want to see what stands there."""
    named = ("second", *_FIELDS)[-len(fields) :]
    which = str(error).removeprefix("Bad ").replace("-", " ")
    if which == "day of month" and fields[-3].isdigit() and 1 <= int(fields[-3]) <= 31:
        return f"there is no day {fields[-3]} in month {fields[-2]}"
    return f"the {which} cannot be {fields[named.index(which)]!r}"


def interval(text: duration.Duration) -> float:
    seconds = duration.seconds(text, "interval")
    if seconds < SHORTEST_INTERVAL:
        raise ValueError("an interval must be 1s or longer")
    return seconds


@functools.lru_cache(maxsize=1024)
def zone(name: str) -> ZoneInfo:
    """The zone of an IANA name; ValueError if this machine has none of that name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # of text that is no path inside the database, or of a directory's
        known = zoneinfo.available_timezones()
        near = names.suggest(name, known)
        if not known:
            remedy = "this machine has no time zones: install the package tzdata"
        else:
            remedy = f"did you mean {near}?" if near else "an IANA name such as Europe/Berlin is needed"
        raise ValueError(f"there is no time zone {name[:64]!r}; {remedy}") from None


def words(text: str) -> str:
    """The expression in English."""
    meaning = parse(text)
    if isinstance(meaning, Interval):
        return f"Every {duration.words(meaning.seconds)}"
    return CronSim(meaning.text, datetime(2000, 1, 1)).explain()  # noqa: DTZ001


# ---------------------------------------------------------------------------------------------------------------------
# Fires


def fires_after(text: str, zone_name: str, anchor: float, after: float) -> Iterator[float]:
    """The fires after an instant, oldest first; without end, or until cronsim gives up."""
    meaning = parse(text)
    if isinstance(meaning, Interval):
        return _steps_after(meaning.seconds, anchor, after)
    walk = _elapsed_after if meaning.elapsed else _fixed_after
    return walk(meaning.text, zone(zone_name), after)


def fires_until(text: str, zone_name: str, anchor: float, until: float) -> Iterator[float]:
    """The fires at or before an instant, newest first."""
    meaning = parse(text)
    if isinstance(meaning, Interval):
        return _steps_until(meaning.seconds, anchor, until)
    walk = _elapsed_until if meaning.elapsed else _fixed_until
    return walk(meaning.text, zone(zone_name), until)


def count(text: str, zone_name: str, anchor: float, after: float, until: float) -> int:
    """About how many fires lie after one instant and at or before another: right but for the hours that a change of
    the clocks skips or repeats, in a few steps for each day."""
    meaning = parse(text)
    if until <= after:
        return 0
    if isinstance(meaning, Interval):
        return _nearest_step(meaning.seconds, anchor, until) - max(_nearest_step(meaning.seconds, anchor, after), -1)
    tz = zone(zone_name)
    return _count_walls(meaning.text, _wall(tz, after), _wall(tz, until))


def _steps_after(seconds: float, anchor: float, after: float) -> Iterator[float]:
    number = max(0, _nearest_step(seconds, anchor, after) + 1)
    while True:
        yield anchor + number * seconds
        number += 1


def _steps_until(seconds: float, anchor: float, until: float) -> Iterator[float]:
    for number in range(_nearest_step(seconds, anchor, until), -1, -1):
        yield anchor + number * seconds


def _nearest_step(seconds: float, anchor: float, at: float) -> int:
    """The number of the last step at or before an instant, by the very sums that make the fires."""
    number = math.floor((at - anchor) / seconds) + 1  # one too high, or right: a quotient may be rounded down
    while anchor + number * seconds > at:
        number -= 1
    return number


def _walls_after(text: str, wall: datetime) -> Iterator[datetime]:
    return CronSim(text, wall)


def _walls_until(text: str, wall: datetime) -> Iterator[datetime]:
    return CronSim(text, wall + _ONE_SECOND, reverse=True)


def _fixed_after(text: str, tz: ZoneInfo, after: float) -> Iterator[float]:
    last = after
    for wall in _walls_after(text, _wall(tz, after)):
        at = _first_instant(tz, wall)
        if at > last:
            yield at
            last = at


def _fixed_until(text: str, tz: ZoneInfo, until: float) -> Iterator[float]:
    wall, last = _wall(tz, until), math.inf
    # In the second pass of a repeated hour all of its wall times lie behind us, also those that the clock shows again.
    repeated = _offset(wall.replace(tzinfo=tz, fold=0)) - _offset(wall.replace(tzinfo=tz, fold=1))
    for each in _walls_until(text, wall + timedelta(seconds=max(0, repeated))):
        at = _first_instant(tz, each)
        if at <= until and at < last:
            yield at
            last = at


def _first_instant(tz: ZoneInfo, wall: datetime) -> float:
    """When the wall clock shows this time first, or when the gap that it falls into ends."""
    here = wall.replace(tzinfo=tz)
    before, after = _offset(here), _offset(here.replace(fold=1))
    if after <= before:
        return here.timestamp()
    as_utc = wall.replace(tzinfo=UTC).timestamp()
    return float(_change(tz, int(as_utc) - after, int(as_utc) - before))


def _elapsed_after(text: str, tz: ZoneInfo, after: float) -> Iterator[float]:
    start = math.floor(after)
    wall = _wall(tz, start)
    while True:
        offset, end = _offset_at(tz, start), _end_of_stretch(tz, start)
        for each in _walls_after(text, wall):
            at = each.replace(tzinfo=UTC).timestamp() - offset
            if at >= end:
                break
            yield at
        else:
            return
        start, wall = end, _wall(tz, end) - _ONE_SECOND


def _elapsed_until(text: str, tz: ZoneInfo, until: float) -> Iterator[float]:
    end = math.floor(until)
    while True:
        offset, start = _offset_at(tz, end), _start_of_stretch(tz, end)
        for each in _walls_until(text, _wall(tz, end)):
            at = each.replace(tzinfo=UTC).timestamp() - offset
            if at < start:
                break
            yield at
        else:
            return
        end = start - 1


# ---------------------------------------------------------------------------------------------------------------------
# Zones


def _wall(tz: ZoneInfo, at: float) -> datetime:
    """What the wall clock shows, to the second."""
    return datetime.fromtimestamp(math.floor(at), tz).replace(tzinfo=None, fold=0)


def _offset(here: datetime) -> int:
    ahead = here.utcoffset()
    assert ahead is not None
    return int(ahead.total_seconds())


def _offset_at(tz: ZoneInfo, at: int) -> int:
    return _offset(datetime.fromtimestamp(at, tz))


def _end_of_stretch(tz: ZoneInfo, at: int) -> int:
    """Until when the offset of an instant surely holds: the next change, or the end of the year."""
    year = datetime.fromtimestamp(at, UTC).year
    return next((change for change in _changes(tz, year) if change > at), _new_year(year + 1))


def _start_of_stretch(tz: ZoneInfo, at: int) -> int:
    year = datetime.fromtimestamp(at, UTC).year
    return next((change for change in reversed(_changes(tz, year)) if change <= at), _new_year(year))


def _new_year(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())


@functools.lru_cache(maxsize=1024)
def _changes(tz: ZoneInfo, year: int) -> tuple[int, ...]:
    """The instants of a year at which the zone's offset changes."""
    first, last = _new_year(year), _new_year(year + 1)
    offsets = [(at, _offset_at(tz, at)) for at in range(first, last + 1, _STEP)]
    return tuple(_change(tz, one[0], other[0]) for one, other in pairwise(offsets) if one[1] != other[1])


def _change(tz: ZoneInfo, low: int, high: int) -> int:
    """The first instant at which the offset is no longer that of `low`; at `high` it is another."""
    old = _offset_at(tz, low)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(tz, middle) == old:
            low = middle
        else:
            high = middle
    return high


def _count_walls(text: str, after: datetime, until: datetime) -> int:
    line = CronSim(text, after)
    in_a_day = len(line.hours) * len(line.minutes) * len(line.seconds)

    def matches(day: date) -> bool:
        return day.month in line.months and line.match_day(day)

    def before(wall: datetime) -> int:
        """How many of its day are not later than it."""
        hours = sum(hour < wall.hour for hour in line.hours) * len(line.minutes) * len(line.seconds)
        minutes = sum(minute < wall.minute for minute in line.minutes) * len(line.seconds)
        seconds = sum(second <= wall.second for second in line.seconds)
        in_this_hour = minutes + (seconds if wall.minute in line.minutes else 0)
        return hours + (in_this_hour if wall.hour in line.hours else 0)

    days = (until.date() - after.date()).days
    whole = sum(in_a_day for number in range(days) if matches(after.date() + timedelta(days=number)))
    first = before(after) if matches(after.date()) else 0
    last = before(until) if matches(until.date()) else 0
    return whole - first + last
