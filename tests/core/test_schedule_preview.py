"""The next fires of an expression, on the clocks of its zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from treadle.core.schedule_preview import fire_times, preview


def _at(*when: int) -> float:
    return datetime(*when, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]


def test_five_fires_in_the_schedules_own_zone_with_words() -> None:
    shown = preview("0 9 * * MON-FRI", "Europe/Berlin", _at(2026, 11, 20, 12))
    assert shown.words.endswith("Europe/Berlin") and "09:00" in shown.words
    assert [fire.local for fire in shown.fires] == [
        "Mon 23 Nov 2026 09:00",
        "Tue 24 Nov 2026 09:00",
        "Wed 25 Nov 2026 09:00",
        "Thu 26 Nov 2026 09:00",
        "Fri 27 Nov 2026 09:00",
    ]
    assert {fire.offset for fire in shown.fires} == {"+01:00"}
    assert not any(fire.is_changed for fire in shown.fires)
    assert shown.fires[0].at == datetime(2026, 11, 23, 8, tzinfo=UTC)


def test_a_change_of_the_clocks_shows_at_the_fire_behind_it() -> None:
    shown = preview("0 9 * * *", "Europe/Berlin", _at(2026, 10, 23, 12))
    assert [(fire.local[:6], fire.offset, fire.is_changed) for fire in shown.fires] == [
        ("Sat 24", "+02:00", False),
        ("Sun 25", "+01:00", True),
        ("Mon 26", "+01:00", False),
        ("Tue 27", "+01:00", False),
        ("Wed 28", "+01:00", False),
    ]
    first = preview("0 9 * * *", "Europe/Berlin", _at(2026, 10, 24, 23)).fires[0]
    assert first.is_changed  # since now, though it is the first


def test_an_interval_counts_from_now_unless_its_times_stay() -> None:
    now = _at(2026, 11, 20, 12)
    assert [fire.local for fire in preview("every 90s", "UTC", now).fires][:2] == [
        "Fri 20 Nov 2026 12:01:30",
        "Fri 20 Nov 2026 12:03",
    ]
    kept = preview("every 90s", "UTC", now, [now + 10])
    assert [fire.local for fire in kept.fires] == ["Fri 20 Nov 2026 12:00:10"]


@pytest.mark.parametrize(
    ("expression", "zone", "says"),
    [("0 25 * * *", "UTC", "hour"), ("every soon", "UTC", "interval"), ("0 9 * * *", "Europe/Berlim", "Europe/Berlin")],
)
def test_what_is_wrong_is_said(expression: str, zone: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        preview(expression, zone, 0.0)


def test_a_zone_that_is_not_known_is_refused_for_an_interval_too() -> None:
    with pytest.raises(ValueError, match="time zone"):
        preview("every 5m", "Nowhere/Land", 0.0)


def test_no_fires_are_none() -> None:
    assert fire_times([], "UTC", 0.0) == ()
