"""Acknowledgement: an operator knows of an item of attention. It is folded until it changes.

It is kept as a mute (`core.mute`), so that no storage needs another verb. Its cause is the item's key, then how bad it
was, then the note:

    !attention:KIND:SUBJECT:FINGERPRINT:LEVEL:MEASURE:NOTE

A task's name begins with a letter or a digit, so no cause of failures begins with the exclamation mark, and neither is
ever taken for the other. SUBJECT and FINGERPRINT are digests: the key is short, whatever the item is about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .attention import Acknowledged, Item, Level
from .mute import Mute

PREFIX: Final = "!attention"
LONGEST_NOTE: Final = 200  # characters, so that all of it fits into a cause
LONGEST_KEY: Final = 128
CLOCKS: Final = 30.0  # seconds by which what began and what was acknowledged may be told wrongly apart
WORSE: Final = 2  # times as many, or as late, are a change
OVER_AFTER: Final = 300.0  # what was not there for so long is over; if it comes back, it is shown again
_LEVELS: Final[Mapping[str, Level]] = {"error": "error", "warn": "warn"}


class Acknowledgement(Struct, frozen=True, kw_only=True):
    """`thing` is the key without what may change: what is acknowledged, whatever has become of it."""

    cause: str  # of the mute that keeps it
    thing: str
    fingerprint: str
    level: Level
    measure: int
    note: str
    by: str | None
    at: float  # by the storage's clock, or by ours if it is kept here
    kept_here: bool = False  # in the memory of this process alone


def thing_of(item: Item) -> str:
    return f"{PREFIX}:{item.kind}:{_digest(item.subject)}"


def key_of(item: Item) -> str:
    """The same for as long as it is the same trouble, however its counters move."""
    return f"{thing_of(item)}:{_digest(item.fingerprint)}:{item.level}"


def check_note(text: str) -> str:
    """ValueError, unless it can be kept."""
    note = " ".join(text.split())
    if len(note) > LONGEST_NOTE or not note.isprintable():
        raise ValueError(f"a note is a line of at most {LONGEST_NOTE} characters")
    return note


def mute_of(key: str, measure: int, note: str = "", by: str | None = None) -> Mute:
    """What to write so that the item with this key is acknowledged."""
    return Mute(cause=f"{key}:{measure}:{check_note(note)}", who=by)


def read(mute: Mute) -> Acknowledgement | None:
    """None if it is a mute of a cause of failures."""
    parts = mute.cause.split(":", 6)
    if parts[0] != PREFIX or len(parts) != 7 or parts[4] not in _LEVELS or not parts[5].isdecimal():
        return None
    return Acknowledgement(
        cause=mute.cause,
        thing=":".join(parts[:3]),
        fingerprint=parts[3],
        level=_LEVELS[parts[4]],
        measure=int(parts[5]),
        note=parts[6],
        by=mute.who,
        at=mute.at,
    )


def kept(mutes: Iterable[Mute]) -> list[Acknowledgement]:
    return [found for mute in mutes if (found := read(mute)) is not None]


def holds(given: Acknowledgement, item: Item, now: datetime) -> bool:
    """Whether the item is as it was when it was acknowledged: it has not become worse, has no other cause, and did not
    begin anew. A cause that is not known (it is looked up beside the page) is no other cause."""
    began, fingerprint = _began(item, now), _digest(item.fingerprint)
    return (
        given.thing == thing_of(item)
        and (given.level == item.level or given.level == "error")
        and (given.fingerprint in ("", fingerprint) or not fingerprint)
        and item.measure <= WORSE * max(1, given.measure)
        and (began is None or began <= given.at + CLOCKS)
    )


def _began(item: Item, now: datetime) -> float | None:
    return None if item.seconds is None or item.at_least else now.timestamp() - item.seconds


def marked(items: Sequence[Item], given: Sequence[Acknowledgement], now: datetime) -> tuple[Item, ...]:
    """The items with their keys, and who acknowledged them: items without an acknowledgement come first."""
    by_thing: dict[str, list[Acknowledgement]] = {}
    for each in sorted(given, key=lambda each: each.at):
        by_thing.setdefault(each.thing, []).append(each)
    found: list[Item] = []
    for item in items:
        held = [each for each in by_thing.get(thing_of(item), ()) if holds(each, item, now)]
        known = _told(held[-1]) if held else None
        found.append(replace(item, key=key_of(item), acknowledged=known))
    return tuple(sorted(found, key=lambda item: item.acknowledged is not None))


def last_seen(
    given: Iterable[Acknowledgement], items: Iterable[Item], before: Mapping[str, float], now: float
) -> dict[str, float]:
    """When each thing that is acknowledged was last there, by a clock that only goes forward: to bring the next time.
    Of what was not seen yet nobody knows better than now."""
    there = {item.key.rsplit(":", 2)[0] for item in items}
    return {each.thing: now if each.thing in there else before.get(each.thing, now) for each in given}


def over(given: Iterable[Acknowledgement], seen: Mapping[str, float], now: float) -> list[Acknowledgement]:
    """Those whose things were not there for a while."""
    return [each for each in given if now - seen[each.thing] >= OVER_AFTER]


def _told(given: Acknowledgement) -> Acknowledged:
    at = datetime.fromtimestamp(given.at, UTC)
    return Acknowledged(by=given.by, at=at, note=given.note, kept_here=given.kept_here)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest() if text else ""
