"""Lines of a job's log, bounded as they come."""

from __future__ import annotations

from treadle.core import logline
from treadle.core.logline import LONGEST_LINE, MOST_BYTES, MOST_LINES, LogLine, Ring, kept, level_of, size


def a_line(n: int, text: str = "x") -> LogLine:
    return LogLine("job", n, 1, "info", text)


def test_numbers_are_microseconds_and_always_rise() -> None:
    ring = Ring("job", 2)
    for at in (5.0, 5.0, 4.0, 6.0):
        assert ring.add(at, "info", "x") == 0
    lines = ring.take()
    assert [line.n for line in lines] == [5_000_000, 5_000_001, 5_000_002, 6_000_000]
    assert {(line.job_id, line.attempt, line.level, line.text) for line in lines} == {("job", 2, "info", "x")}
    assert len(ring) == ring.bytes == 0
    ring.add(1.0, "info", "x")
    assert [line.n for line in ring.take()] == [6_000_001]


def test_a_ring_keeps_the_last_lines_and_says_how_many_it_left_out() -> None:
    ring = Ring("job", 1)
    pushed = sum(ring.add(float(n), "info", f"line {n}") for n in range(MOST_LINES + 500))
    assert pushed == ring.left_out == 500
    first, *rest = ring.take()
    assert (first.level, first.n) == ("warning", rest[0].n - 1)
    assert first.text.startswith("… 500 lines are left out")
    assert (rest[0].text, len(rest)) == ("line 500", MOST_LINES)
    assert ring.take() == []


def test_a_ring_of_a_gigabyte_is_small() -> None:
    ring = Ring("job", 1)
    text = "x" * 1_000_000
    for n in range(100):
        ring.add(float(n), "info", text)
        assert ring.bytes <= MOST_BYTES
    assert all(len(line.text.encode()) <= LONGEST_LINE for line in ring.take())


def test_what_could_not_be_written_comes_before_what_is_new() -> None:
    ring = Ring("job", 1)
    ring.add(1.0, "info", "first")
    taken = ring.take()
    ring.add(2.0, "info", "second")
    assert ring.put_back(taken) == 0
    assert [line.text for line in ring.take()] == ["first", "second"]
    assert ring.put_back([a_line(n) for n in range(MOST_LINES + 1)]) == 1


def test_of_an_attempt_the_last_lines_and_bytes_are_kept() -> None:
    assert kept([]) == []
    many = [a_line(n) for n in range(MOST_LINES + 1)]
    assert kept(many) == many[1:]
    large = [a_line(n, "ü" * 2040) for n in range(20)]
    assert size(large[0]) == 4096
    assert kept(large) == large[-MOST_BYTES // 4096 :]


def test_levels_have_the_nearest_name() -> None:
    assert [level_of(n) for n in (0, 10, 25, 30, 41, 99)] == ["debug", "debug", "info", "warning", "error", "critical"]


def test_a_line_is_shown_with_its_moment() -> None:
    view = logline.view(LogLine("job", 1_500_000, 3, "error", "text"))
    assert (view.n, view.attempt, view.level, view.text) == (1_500_000, 3, "error", "text")
    assert view.at.isoformat() == "1970-01-01T00:00:01.500000+00:00"
