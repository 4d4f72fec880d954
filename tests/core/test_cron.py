"""When cron lines and intervals fire. The zones are compared with a scan of every minute of two years."""

from __future__ import annotations

import os
import zoneinfo
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core import cron

NEW_YORK = "America/New_York"
BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def told(instants: Iterator[float], count: int) -> list[str]:
    return [datetime.fromtimestamp(each, UTC).strftime("%m-%dT%H:%M:%S") for each in islice(instants, count)]


def after(text: str, zone: str, start: str, count: int) -> list[str]:
    return told(cron.fires_after(text, zone, 0.0, at(start)), count)


def until(text: str, zone: str, end: str, count: int) -> list[str]:
    return told(cron.fires_until(text, zone, 0.0, at(end)), count)


# Expressions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0 9 * * MON-FRI", "06-01T09:00:00"),
        ("0 9 * * mon-fri", "06-01T09:00:00"),
        ("  */15   *  * * *  ", "06-01T00:15:00"),
        ("*/20 * * * * *", "06-01T00:00:20"),
        ("0 30 6 * * *", "06-01T06:30:00"),
        ("@hourly", "06-01T01:00:00"),
        ("@Daily", "06-02T00:00:00"),
        ("@midnight", "06-02T00:00:00"),
        ("@weekly", "06-07T00:00:00"),
        ("@monthly", "07-01T00:00:00"),
        ("@yearly", "01-01T00:00:00"),
        ("@annually", "01-01T00:00:00"),
        ("0 0 L * *", "06-30T00:00:00"),
        ("0 0 LW * *", "06-30T00:00:00"),
        ("0 0 * * FRI#2", "06-12T00:00:00"),
        ("0 0 * * 5L", "06-26T00:00:00"),
        ("0 0 13 * FRI", "06-05T00:00:00"),  # both days given: either matches
        ("0 0 29 FEB *", "02-29T00:00:00"),
        ("0 0 30 2 MON", "02-01T00:00:00"),  # no 30 February, but Mondays
        ("every 10m", "06-01T00:10:00"),
        ("EVERY 1h30m", "06-01T01:30:00"),
    ],
)
def test_expressions(text: str, first: str) -> None:
    start = at("2026-06-01T00:00Z")  # a Monday
    assert told(cron.fires_after(text, "UTC", start, start), 1) == [first]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "1 to 256 characters"),
        ("   ", "1 to 256 characters"),
        ("* " * 200, "1 to 256 characters"),
        ("* * * *", "4 fields"),
        ("* * * * * * *", "7 fields"),
        ("60 * * * *", "the minute cannot be '60'"),
        ("60 * * * * *", "the second cannot be '60'"),
        ("* 24 * * *", "the hour cannot be '24'"),
        ("* * 32 * *", "the day of month cannot be '32'"),
        ("* * x * *", "the day of month cannot be 'x'"),
        ("* * * 13 *", "the month cannot be '13'"),
        ("* * * * SAT-SUN", "the day of week cannot be 'SAT-SUN'"),
        ("*/0 * * * *", "the minute cannot be '\\*/0'"),
        ("0 0 30 2 *", "there is no day 30 in month 2"),
        ("0 0 31 4,6 *", "there is no day 31 in month 4,6"),
        ("0 0 30 2 */7", "there is no day 30"),
        ("@reboot", "'@reboot' is not known: one of @yearly"),
        ("every 0s", "1s or longer"),
        ("every 500ms", "1s or longer"),
        ("every now and then", "is not a duration"),
        ("every -5m", "negative"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        cron.parse(text)


def test_a_date_that_never_comes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron.CronSim, "__next__", lambda self: next(iter(())))
    with pytest.raises(ValueError, match="would never fire"):
        cron.parse.__wrapped__("0 0 1 1 *")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Europe/Berln", "did you mean Europe/Berlin"),
        ("", "an IANA name"),
        ("../../etc/passwd", "an IANA name"),
        ("Europe", "no time zone"),
        ("\0", "an IANA name"),
    ],
)
def test_an_unknown_zone_is_refused(name: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        cron.zone(name)


def test_a_machine_without_zones_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set[str])
    with pytest.raises(ValueError, match="tzdata"):
        cron.zone("Europe/Nowhere")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 9 * * MON-FRI", "At 09:00 on Monday through Friday"),
        ("*/5 * * * *", "Every fifth minute of every hour"),
        ("@hourly", "At the start of every hour"),
        ("every 90m", "Every 1h30m"),
        ("0 0 L * *", "At 00:00 on the last day of every month"),
    ],
)
def test_words(text: str, words: str) -> None:
    assert cron.words(text) == words


# Intervals -----------------------------------------------------------------------------------------------------------


def test_an_interval_counts_from_its_anchor() -> None:
    anchor = 1_000_000.25
    assert list(islice(cron.fires_after("every 10s", "UTC", anchor, anchor), 2)) == [anchor + 10, anchor + 20]
    assert next(cron.fires_after("every 10s", "UTC", anchor, anchor - 99)) == anchor
    assert next(cron.fires_after("every 10s", "UTC", anchor, anchor + 10)) == anchor + 20
    assert list(cron.fires_until("every 10s", "UTC", anchor, anchor + 29)) == [anchor + 20, anchor + 10, anchor]
    assert list(cron.fires_until("every 10s", "UTC", anchor, anchor - 1)) == []
    assert cron.count("every 10s", "UTC", anchor, anchor, anchor + 35) == 3
    assert cron.count("every 10s", "UTC", anchor, anchor - 50, anchor + 35) == 4


@given(st.floats(1.0, 1e5), st.floats(1e9, 2e9), st.floats(0, 1e7))
def test_both_ends_of_an_interval_agree_to_the_last_bit(seconds: float, anchor: float, later: float) -> None:
    text = f"every {seconds:.3f}s"
    coming = next(cron.fires_after(text, "UTC", anchor, anchor + later))
    assert coming > anchor + later
    assert next(cron.fires_until(text, "UTC", anchor, coming)) == coming
    gone = next(cron.fires_until(text, "UTC", anchor, anchor + later))
    assert gone <= anchor + later
    assert next(cron.fires_after(text, "UTC", anchor, gone)) == coming


# Changes of the clocks, by hand --------------------------------------------------------------------------------------


def test_a_skipped_time_fires_right_after_the_gap_once() -> None:
    start, end = "2026-03-07T12:00Z", "2026-03-08T12:00Z"  # 2:00 to 3:00 is skipped on the 8th, at 7:00 UTC
    for line in ("30 2 * * *", "0,15,30 2 * * *", "30 2,3 8 3 *", "*/20 30 2 * * *", "0,30 2-2 * * *"):
        assert after(line, NEW_YORK, start, 1) == ["03-08T07:00:00"], line
    assert after("0 3 * * *", NEW_YORK, start, 2) == ["03-08T07:00:00", "03-09T07:00:00"]
    assert after("0 2,3 * * *", NEW_YORK, start, 2) == ["03-08T07:00:00", "03-09T06:00:00"]
    assert until("30 2 * * *", NEW_YORK, end, 2) == ["03-08T07:00:00", "03-07T07:30:00"]
    assert until("0 2,3 * * *", NEW_YORK, end, 2) == ["03-08T07:00:00", "03-07T08:00:00"]
    assert until("30 2 * * *", NEW_YORK, "2026-03-08T06:59Z", 1) == ["03-07T07:30:00"]
    assert after("30 2 * * *", NEW_YORK, "2026-03-08T07:00Z", 1) == ["03-09T06:30:00"]


def test_a_repeated_time_fires_the_first_time_only() -> None:
    first, second = "2026-11-01T05:10Z", "2026-11-01T06:10Z"  # 1:00 to 2:00 comes twice, from 5:00 and from 6:00 UTC
    assert after("30 1 * * *", NEW_YORK, first, 2) == ["11-01T05:30:00", "11-02T06:30:00"]
    assert after("30 1 * * *", NEW_YORK, second, 1) == ["11-02T06:30:00"]
    assert until("30 1 * * *", NEW_YORK, second, 2) == ["11-01T05:30:00", "10-31T05:30:00"]
    assert until("5,50 1 * * *", NEW_YORK, second, 3) == ["11-01T05:50:00", "11-01T05:05:00", "10-31T05:50:00"]
    assert after("*/30 30 1 * * *", NEW_YORK, first, 3) == ["11-01T05:30:00", "11-01T05:30:30", "11-02T06:30:00"]
    assert until("59 0 * * *", NEW_YORK, first, 1) == ["11-01T04:59:00"]


def test_a_line_that_follows_elapsed_time_runs_through_both_passes() -> None:
    assert after("*/30 * * * *", NEW_YORK, "2026-11-01T04:45Z", 5) == [
        f"11-01T{hour}" for hour in ("05:00:00", "05:30:00", "06:00:00", "06:30:00", "07:00:00")
    ]
    assert after("*/30 1 * * *", NEW_YORK, "2026-11-01T04:45Z", 5)[:4] == [
        f"11-01T{hour}" for hour in ("05:00:00", "05:30:00", "06:00:00", "06:30:00")
    ]
    assert until("30 * * * *", NEW_YORK, "2026-11-01T07:00Z", 3) == [
        f"11-01T{hour}" for hour in ("06:30:00", "05:30:00", "04:30:00")
    ]


def test_the_gap_adds_nothing_to_a_line_that_follows_elapsed_time() -> None:
    assert after("*/30 * * * *", NEW_YORK, "2026-03-08T06:15Z", 3) == [
        f"03-08T{hour}" for hour in ("06:30:00", "07:00:00", "07:30:00")
    ]
    assert after("*/30 2 * * *", NEW_YORK, "2026-03-08T06:15Z", 1) == ["03-09T06:00:00"]
    assert until("*/30 2 * * *", NEW_YORK, "2026-03-08T12:00Z", 1) == ["03-07T07:30:00"]


def test_a_repeated_hour_is_not_overlooked_by_a_rare_line() -> None:
    # In the next year the same date is before the change, with the offset of the first pass.
    assert after("*/40 2 25 10 *", BERLIN, "2026-10-25T00:50Z", 3) == [
        "10-25T01:00:00",
        "10-25T01:40:00",
        "10-25T00:00:00",
    ]


def test_a_day_that_was_skipped_fires_at_the_start_of_the_next() -> None:
    # Samoa went from the 29th to the 31st of December 2011.
    assert until("0 12 * * *", "Pacific/Apia", "2012-01-01T00:00Z", 3) == [
        "12-31T22:00:00",
        "12-30T22:00:00",
        "12-30T10:00:00",
    ]


def test_half_an_hour_at_lord_howe() -> None:
    # At 2:00 on 5 April 2026 the clocks go back to 1:30; on 4 October they go from 2:00 to 2:30.
    assert after("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T13:00Z", 2) == ["04-04T14:45:00", "04-05T15:15:00"]
    assert after("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T13:00Z", 2) == ["10-03T15:30:00", "10-04T15:15:00"]


def test_a_fraction_of_a_second_is_no_time_of_its_own() -> None:
    noon = at("2026-06-01T12:00Z")
    for line in ("0 12 * * *", "*/60 12 * * *", "0 0 12 * * *"):
        assert next(cron.fires_until(line, "UTC", 0.0, noon + 0.9)) == noon
        assert next(cron.fires_until(line, "UTC", 0.0, noon)) == noon
        assert next(cron.fires_until(line, "UTC", 0.0, noon - 0.1)) == noon - 86400
        assert next(cron.fires_after(line, "UTC", 0.0, noon - 0.1)) == noon
        assert next(cron.fires_after(line, "UTC", 0.0, noon)) == noon + 86400


def test_the_calendar_ends() -> None:
    """cronsim gives up after fifty years without a match; a line that fires has one long before."""
    line = cron.Line("0 0 30 2 *", elapsed=True)
    tz = cron.zone("UTC")

    def nothing(text: str, wall: datetime) -> Iterator[datetime]:
        return iter(())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cron, "_walls_after", nothing)
        patch.setattr(cron, "_walls_until", nothing)
        for walk in (cron._elapsed_after, cron._elapsed_until, cron._fixed_after, cron._fixed_until):
            assert list(walk(line.text, tz, 0.0)) == []


# Counting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["* * * * *", "*/7 3-9 * * *", "0 12 1,15 * MON", "30 5 2 * * *", "*/20 1-3 * 2 * *"])
@pytest.mark.parametrize("start", ["2026-01-31T23:59Z", "2026-02-01T02:02:20Z", "2026-02-03T12:00Z"])
def test_a_count_is_that_of_the_fires(line: str, start: str) -> None:
    begin = at(start)
    for seconds in (0, 1, 60, 3600, 5 * 86400 + 1234):
        end = begin + seconds
        fires = list(takewhile(lambda each: each <= end, cron.fires_after(line, "UTC", 0.0, begin)))  # noqa: B023
        assert cron.count(line, "UTC", 0.0, begin, end) == len(fires), (line, seconds)
    assert cron.count(line, "UTC", 0.0, begin, begin - 1) == 0


def test_a_month_of_seconds_is_counted_without_walking_it() -> None:
    assert cron.count("* * * * * *", BERLIN, 0.0, at("2026-06-01T00:00Z"), at("2026-07-01T00:00Z")) == 30 * 86400


# Two years, minute by minute -----------------------------------------------------------------------------------------

BEGIN = int(at("2025-07-01T00:00Z"))
END = int(at("2027-07-01T00:00Z"))
ZONES = [
    "Australia/Lord_Howe",  # half an hour of summer
    "Asia/Kathmandu",  # 5:45, no summer
    "Europe/Berlin",
    "America/New_York",
    "Pacific/Chatham",  # 12:45 and 13:45
    "Pacific/Apia",
    "Africa/Casablanca",  # back and forth around Ramadan
    "America/Santiago",  # at midnight
]
CAMPAIGN = int(os.environ.get("TREADLE_TEST_CRON", "0"))  # so many lines in every zone there is
MOST = 500  # fires that are compared from each place; most lines have fewer in all


@cache
def minutes(zone: str) -> tuple[list[int], list[bool], list[tuple[int, range]]]:
    """For each minute of the two years: what the wall shows (in minutes since the epoch), and whether for the first
    time; and the gaps: at which minute each ends, and what it skips."""
    tz = ZoneInfo(zone)

    def wall(second: int) -> int:
        shift = datetime.fromtimestamp(second, tz).utcoffset()
        assert shift is not None
        return (second + int(shift.total_seconds())) // 60

    walls: list[int] = []
    for hour in range(BEGIN, END, 3600):
        first = wall(hour)
        if wall(hour + 3599) == first + 59:  # the clock was not touched in this hour
            walls += range(first, first + 60)
        else:
            walls += [wall(second) for second in range(hour, hour + 3600, 60)]
    fresh, gaps, latest = [], [], walls[0] - 1
    for n, shown in enumerate(walls):
        fresh.append(shown > latest)
        if shown > latest + 1:
            gaps.append((n, range(latest + 1, shown)))
        latest = max(latest, shown)
    return walls, fresh, gaps


def members(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, last = (low, high) if span == "*" else map(int, (span.split("-") * 2)[:2])
        found |= set(range(first, last + 1, int(step or 1)))
    return found


def scan(line: str, zone: str) -> list[int]:
    """Every minute is looked at: what a schedule with this line must fire."""
    minute, hour, day, month, weekday = line.split()
    walls, fresh, gaps = minutes(zone)
    at_minute, at_hour = members(minute, 0, 59), members(hour, 0, 23)
    in_day = [each // 60 in at_hour and each % 60 in at_minute for each in range(1440)]
    epoch = date(1970, 1, 1)

    either = not (day.startswith("*") or weekday.startswith("*"))

    @cache
    def on(number: int) -> bool:
        that = epoch + timedelta(days=number)
        by_day = that.day in members(day, 1, 31)
        by_weekday = that.isoweekday() % 7 in members(weekday, 0, 6)
        return that.month in members(month, 1, 12) and ((by_day or by_weekday) if either else (by_day and by_weekday))

    hits = {n for n, shown in enumerate(walls) if in_day[shown % 1440] if on(shown // 1440)}
    if not (minute.startswith("*") or hour.startswith("*")):
        hits = {n for n in hits if fresh[n]}
        hits |= {n for n, skipped in gaps if any(in_day[each % 1440] and on(each // 1440) for each in skipped)}
    return [BEGIN + 60 * n for n in sorted(hits)]


def field(low: int, high: int, *, often: bool) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    several = st.lists(number, min_size=1, max_size=4).map(lambda chosen: ",".join(map(str, chosen)))
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.integers(1, high).map("*/{}".format)
    return st.one_of(*([st.just("*")] * 3 if often else [several]), several, span, steps)


LINES = st.tuples(
    field(0, 59, often=False),
    st.one_of(field(0, 23, often=False), field(0, 4, often=False)),  # the hours in which clocks are changed
    st.one_of(st.just("*"), field(1, 28, often=True)),
    field(1, 12, often=True),
    field(0, 6, often=True),
).map(" ".join)


def check_against_scan(line: str, zone: str) -> None:
    expected = scan(line, zone)
    _, _, gaps = minutes(zone)
    starts = [BEGIN, *(BEGIN + 60 * n - 2 * 86400 for n, _ in gaps), *(each - 3 * 86400 for each in folds(zone))]
    for start in starts:
        coming = expected[bisect_left(expected, start) :][:MOST]
        assert list(islice(cron.fires_after(line, zone, 0.0, start - 1), len(coming))) == coming
    for end in [*(start + 4 * 86400 for start in starts), END - 1]:
        gone = expected[: bisect_right(expected, end)][: -MOST - 1 : -1]
        assert list(islice(cron.fires_until(line, zone, 0.0, end + 0.5), len(gone))) == gone


@cache
def folds(zone: str) -> list[int]:
    _, fresh, _ = minutes(zone)
    return [BEGIN + 60 * n for n in range(1, len(fresh)) if fresh[n - 1] and not fresh[n]]


def compare(zone: str, lines: int) -> None:
    @settings(max_examples=lines, deadline=None)
    @given(LINES)
    def with_scan(line: str) -> None:
        check_against_scan(line, zone)

    with_scan()
    minutes.cache_clear()
    folds.cache_clear()


@pytest.mark.parametrize("zone", ZONES)
def test_two_years_minute_by_minute(zone: str) -> None:
    check_against_scan("30 2 * * *", zone)
    check_against_scan("*/30 * * * *", zone)
    compare(zone, 4)


@pytest.mark.slow
@pytest.mark.skipif(not CAMPAIGN, reason="TREADLE_TEST_CRON=N compares N lines in every zone there is")
def test_two_years_in_every_zone() -> None:
    for zone in sorted(zoneinfo.available_timezones()):
        compare(zone, CAMPAIGN)


def test_the_last_day_of_each_month() -> None:
    fires = islice(cron.fires_after("0 0 L * *", BERLIN, 0.0, at("2025-12-31T23:30Z")), 26)
    days = [datetime.fromtimestamp(each, ZoneInfo(BERLIN)) for each in fires]
    assert all(each.day == monthrange(each.year, each.month)[1] and each.hour == 0 for each in days)
