"""The log of a job, folded by attempt and bounded."""

from __future__ import annotations

import html
from datetime import UTC, datetime

from treadle.core.log_fold import LINE, ROOM, cost, fold, newest
from treadle.core.logline import LogView
from treadle.core.text import visible_lines


def a_line(n: int, attempt: int = 1, level: str = "info", text: str = "") -> LogView:
    at = datetime.fromtimestamp(n, UTC)
    return LogView(n=n, at=at, attempt=attempt, level=level, text=text or f"line {n}")


def test_lines_are_folded_by_attempt_the_newest_first() -> None:
    lines = [a_line(1), a_line(2, level="warning"), a_line(3, 2), a_line(4, 2, "error"), a_line(5, 2, "critical")]
    found = fold(lines)
    assert [(each.attempt, [line.n for line in each.lines]) for each in found.attempts] == [(2, [3, 4, 5]), (1, [1, 2])]
    assert [(each.errors, each.warnings) for each in found.attempts] == [(2, 0), (0, 1)]
    assert (found.total, found.matching, found.left_out, found.shown, found.more) == (5, 5, 0, 5, False)


def test_those_alone_that_have_the_text() -> None:
    lines = [a_line(1, text="Timeout of 5 s"), a_line(2), a_line(3, 2, "error", "no timeout")]
    found = fold(lines, text=" TIMEOUT ", more=True)
    assert [line.n for each in found.attempts for line in each.lines] == [3, 1]
    assert (found.text, found.total, found.matching, found.more) == ("TIMEOUT", 3, 2, True)
    assert [line.n for each in fold(lines, text="error").attempts for line in each.lines] == [3]  # by its level
    assert fold(lines, text="nothing").attempts == ()


def test_the_newest_lines_have_the_room() -> None:
    lines = [a_line(n, 1 + n // 600, text="x" * 100) for n in range(1200)]
    found = fold(lines)
    held = [line.n for each in found.attempts for line in each.lines]
    assert max(held) == 1199 and len(held) == ROOM // (LINE + 100) == found.shown
    assert found.left_out == 1200 - len(held)
    assert sorted(held) == list(range(1200 - len(held), 1200))


def test_a_line_costs_what_a_page_writes() -> None:
    for text in ("plain", "<b>&'\"" * 50, "\u202e\u200b" * 50, "naïve 👩‍🚀", "half \ud800"):
        written = html.escape(visible_lines(text)).encode("utf-8", "replace")
        assert cost(a_line(1, text=text)) >= len(written) + LINE
    assert newest([a_line(1, text="x")], room=LINE) == []


def test_lines_that_were_skipped_count_as_left_out_unless_a_text_is_looked_for() -> None:
    lines = [a_line(1), a_line(2)]
    found = fold(lines, skipped=3)
    assert (found.total, found.matching, found.left_out, found.shown, found.more) == (5, 5, 3, 2, False)
    found = fold(lines, skipped=3, text="line 2")
    assert (found.total, found.matching, found.left_out, found.shown, found.more) == (2, 1, 0, 1, True)
