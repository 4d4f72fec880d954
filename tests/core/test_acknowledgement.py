from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.core.acknowledgement import (
    LONGEST_KEY,
    LONGEST_NOTE,
    OVER_AFTER,
    check_note,
    holds,
    kept,
    key_of,
    last_seen,
    marked,
    mute_of,
    over,
    read,
)  # fmt: skip
from treadle.core.attention import Item
from treadle.core.job import ErrorEntry, cause_of
from treadle.core.mute import Mute, check_cause

NOW = datetime(2026, 11, 18, 3, tzinfo=UTC)
AT = NOW.timestamp() - 60


def item(**given: Any) -> Item:
    fields: dict[str, Any] = {"kind": "failing", "subject": "mail pay", "level": "warn", "text": "x", "seconds": 600.0}
    return Item(**(fields | {"fingerprint": "pay:Declined:", "measure": 10} | given))


def known(of: Item, note: str = "on it") -> Mute:
    return replace(mute_of(key_of(of), of.measure, note, "ann"), at=AT)


def test_it_is_a_mute_and_never_one_of_a_cause_of_failures() -> None:
    mute = known(item(), note="see: ticket:7")
    assert check_cause(mute.cause) == mute.cause and mute.cause.startswith("!attention:failing:")
    (given,) = kept([mute])
    assert (given.note, given.by, given.at, given.measure, given.level) == ("see: ticket:7", "ann", AT, 10, "warn")
    error = ErrorEntry(attempt=1, kind="error", type="failing", place="0:0:warn:1:x")
    assert kept([Mute(cause=cause_of("attention", error)), Mute(cause="a:b:c")]) == []
    for broken in ("!attention:a", "!attention:a:b:c:ok:1:x", "!attention:a:b:c:warn:one:x"):
        assert read(Mute(cause=broken)) is None


def test_a_key_is_short_and_does_not_move_with_counters() -> None:
    long = item(subject="q" * 9_999, fingerprint="\ud800" * 9_999)
    assert len(key_of(long)) <= LONGEST_KEY
    check_cause(mute_of(key_of(long), 10**9, "€" * LONGEST_NOTE).cause)
    assert key_of(item()) == key_of(item(text="y", seconds=1.0, measure=99))


def test_a_note_is_one_line() -> None:
    assert check_note("  on \n it ") == "on it"
    for text in ("x" * (LONGEST_NOTE + 1), "a\x00b"):
        with pytest.raises(ValueError, match="a note is a line"):
            check_note(text)


@pytest.mark.parametrize(
    ("now", "is_held"),
    [
        ({}, True),
        ({"text": "other words", "measure": 20}, True),
        ({"measure": 21}, False),  # more than twice as bad
        ({"level": "error"}, False),
        ({"subject": "mail send"}, False),
        ({"kind": "paused"}, False),
        ({"fingerprint": "pay:Timeout:"}, False),
        ({"fingerprint": ""}, True),  # its cause is not known yet
        ({"seconds": 20.0}, False),  # it was over, and began again
        ({"seconds": 20.0, "at_least": True}, True),  # nobody knows when it began
        ({"seconds": None}, True),
        ({"seconds": 31.0}, True),  # clocks are not so exact
    ],
)
def test_it_holds_until_the_item_changes(now: dict[str, Any], is_held: bool) -> None:
    (given,) = kept([known(item())])
    assert holds(given, item(**now), NOW) is is_held


def test_what_has_become_better_stays_acknowledged() -> None:
    (given,) = kept([known(item(level="error"))])
    assert holds(given, item(level="warn"), NOW)
    (unknown,) = kept([known(item(fingerprint=""))])
    assert holds(unknown, item(), NOW)


def test_what_is_acknowledged_comes_last_and_names_the_newest() -> None:
    other = item(subject="other")
    given = kept([replace(known(item(), "new"), at=AT + 5), known(item(), "old")])
    first, last = marked([item(), other], given, NOW)
    assert first.acknowledged is None and first.key == key_of(other)
    assert last.acknowledged is not None and (last.acknowledged.note, last.acknowledged.kept_here) == ("new", False)


def test_what_was_not_there_for_a_while_is_over() -> None:
    given = kept([known(item())])
    (there,) = marked([item()], given, NOW)
    seen = last_seen(given, [there], {}, 100.0)
    seen = last_seen(given, [], seen, 100.0 + OVER_AFTER - 1)
    assert over(given, seen, 100.0 + OVER_AFTER - 1) == []
    assert over(given, last_seen(given, [], seen, 100.0 + OVER_AFTER), 100.0 + OVER_AFTER) == given
    assert over(given, last_seen(given, [], {}, 7.0), 7.0) == []  # a process that has just begun cannot tell
