"""How pages write numbers, times and values. Pure: what they are relative to comes in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ...core.drain import Drain
from ...core.view import QueueView, is_at_least

_SPANS: Final = ((86_400.0, "d", 3_600.0, "h"), (3_600.0, "h", 60.0, "m"), (60.0, "m", 1.0, "s"))
LINE: Final = 160
_as_json: Final = json.JSONEncoder(ensure_ascii=False, default=str).encode


def span(seconds: float | None) -> str:
    """How long, in at most two units: 350 ms, 1.2 s, 4m 12s, 2d 4h.

    >>> span(252)
    '4m 12s'
    """
    if seconds is None:
        return "–"
    if math.isinf(seconds):
        return "never"
    seconds = max(0.0, seconds)
    if seconds < 0.001:
        return "0 ms" if not seconds else "<1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    for size, unit, small, part in _SPANS:
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            less = int(rest // small)
            return f"{int(whole)}{unit}" + (f" {less}{part}" if less else "")
    raise AssertionError(seconds)  # pragma: no cover


def ago(at: datetime, now: datetime) -> str:
    """How far from now, in one unit: 12s ago, in 4m.

    The script of the pages says it in the same words, so that nothing jumps when it takes over.
    """
    away = (now - at).total_seconds()
    size = abs(away)
    if size < 1:
        return "now"
    for limit, by, unit in (
        (60.0, 1.0, "s"),
        (3_600.0, 60.0, "m"),
        (86_400.0, 3_600.0, "h"),
        (math.inf, 86_400.0, "d"),
    ):
        if size < limit:
            said = f"{int(size // by)}{unit}"
            return f"{said} ago" if away > 0 else f"in {said}"
    raise AssertionError(away)  # pragma: no cover


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(at: datetime) -> str:
    return f"{at.astimezone(UTC).isoformat(' ', 'seconds')[:19]} UTC"


def clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]


def number(value: float | None, cap: int | None = None, *, more: bool = False) -> str:
    """With thin groups; what was counted only up to a cap says so: 10k+. So does what may be `more`.

    >>> number(10_000, 10_000), number(1204), number(159, 10_000, more=True)
    ('10k+', '1,204', '159+')
    """
    if value is None:
        return "–"
    if cap is not None and value >= cap:
        return f"{cap // 1000}k+" if cap >= 1000 else f"{cap}+"
    plain = f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"
    return f"{plain}+" if more and value else plain


def count(queue: QueueView, state: str) -> str:
    """How many jobs of a queue are in a state. What was counted only so far says so."""
    return number(getattr(queue, state), queue.capped_at if is_at_least(queue, state) else None)


def total(numbers: Iterable[int], cap: int, *, more: bool = False) -> str:
    """What they are together. Each was counted up to the cap: if one has reached it, there may be more.

    >>> total([10_000, 10_000, 3], 10_000), total([9_999, 3], 10_000), total([7], 10_000, more=True)
    ('20k+', '10,002', '7+')
    """
    found = [min(each, cap) for each in numbers]
    return number(sum(found), sum(found) if cap in found else None, more=more)


def drain(found: Drain) -> str:
    """When a queue will be empty, in as few words as a cell has room for.

    >>> drain(Drain("in", seconds=252)), drain(Drain("grows", per_minute=40)), drain(Drain("never", reason="paused"))
    ('4m 12s', 'grows by 40/min', 'never: paused')
    """
    match found.kind:
        case "empty":
            return "–"
        case "in":
            return span(found.seconds)
        case "grows":
            return f"grows by {number(found.per_minute if found.per_minute < 10 else round(found.per_minute))}/min"
        case "steady":
            return "steady"
        case "never":
            return f"never: {found.reason}"
        case "unknown":
            return found.reason


def share(part: float, whole: float) -> str:
    if not whole or not part:
        return "0 %" if whole else "–"
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def size(count: int | None) -> str:
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit in ("B", "KiB") or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError(count)  # pragma: no cover


def vital(value: Any, name: str) -> str:
    """A number that a storage measured of itself, by what it is called."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "bytes" in name or name == "disk_free":
            return size(int(value))
        if name.endswith("seconds"):
            return span(float(value))
        return number(value)
    return str(value)


def one_line(value: Any) -> str:
    """Arguments in one line: name=value, cut."""
    if value is None or value == {}:
        return ""
    if isinstance(value, dict):
        said = ", ".join(f"{name}={_short(each)}" for name, each in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    else:
        said = _short(value)
    return said if len(said) <= LINE else said[: LINE - 1] + "…"


def pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def first_line(text: str, most: int = 240) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= most else line[: most - 1] + "…"


def _short(value: Any) -> str:
    said = _as_json(value)
    return said if len(said) <= 60 else said[:59] + "…"


@dataclass(frozen=True, slots=True)
class Spark:
    """A small chart as paths of a picture 100 wide and 24 high."""

    line: str
    area: str


def spark(values: Sequence[float | None]) -> Spark | None:
    """None if there is nothing to draw."""
    known = [value for value in values if value is not None]
    if len(values) < 2 or not any(known):
        return None
    top = max(known) or 1.0
    step = 100 / (len(values) - 1)
    points = [(n * step, 23 - 21 * (value or 0.0) / top) for n, value in enumerate(values)]
    line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return Spark(line, f"{line}L100 24L0 24Z")
