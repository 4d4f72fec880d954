"""When a schedule fires next, on the clocks of its own zone: a preview of a schedule before it is saved."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from . import cron
from . import schedule as scheduling

COUNT: Final = 5
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class FireTime(Struct, frozen=True):
    """One fire: the instant, what the clocks of the zone show, and their offset from UTC."""

    at: datetime
    local: str
    offset: str
    is_changed: bool  # the offset is another one than at the time before: the clocks were changed


class SchedulePreview(Struct, frozen=True):
    """What an expression means in a zone, and its next fires."""

    words: str
    zone: str
    fires: tuple[FireTime, ...]


def preview(expression: str, zone: str, now: float, times: Iterable[float] | None = None) -> SchedulePreview:
    """What would be saved now; ValueError, with what is wrong. `times`: the fires of a schedule that is there and whose
    times stay, since an interval counts from when it was made.

    >>> shown = preview("0 9 * * *", "Europe/Berlin", 1792749600)
    >>> shown.words, [(fire.local, fire.offset) for fire in shown.fires[:1]]
    ('At 09:00 every day, Europe/Berlin', [('Sat 24 Oct 2026 09:00', '+02:00')])
    """
    plan = scheduling.Plan(expression=expression, zone=zone, task="", queue="")
    words = scheduling.describe(plan)
    cron.zone(zone)
    if times is None:
        times = scheduling.next_fires(plan, now, now, COUNT)
    return SchedulePreview(words, zone, fire_times(times, zone, now))


def fire_times(times: Iterable[float], zone: str, now: float) -> tuple[FireTime, ...]:
    """Instants on the clocks of a zone; ValueError if this machine does not know it."""
    tz = cron.zone(zone)
    before = datetime.fromtimestamp(now, tz).utcoffset()
    found: list[FireTime] = []
    for each in times:
        here = datetime.fromtimestamp(each, tz)
        offset = here.utcoffset()
        found.append(FireTime(here.astimezone(UTC), _local(here), _offset(here), offset != before))
        before = offset
    return tuple(found)


def _local(here: datetime) -> str:
    """Without the words of the machine's own language."""
    day = f"{_DAYS[here.weekday()]} {here.day} {_MONTHS[here.month - 1]} {here.year}"
    return f"{day} {here:%H:%M:%S}" if here.second else f"{day} {here:%H:%M}"


def _offset(here: datetime) -> str:
    return here.isoformat(timespec="seconds")[19:]
