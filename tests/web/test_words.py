"""How pages write numbers, times and tracebacks."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime, timedelta

import pytest

from treadle.core.drain import Drain
from treadle.web.pages import traces, words

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)

TRACE = """Traceback (most recent call last):
  File "/app/.venv/lib/python3.11/site-packages/httpx/_client.py", line 10, in get
    return self.send()
  File "/app/.venv/lib/python3.11/site-packages/httpx/_client.py", line 20, in send
    raise error
httpx.ConnectTimeout: timed out

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/shop/billing.py", line 7, in charge
    pay(
        order,
    )
shop.billing.Declined: <b>no</b>
"""


def test_the_examples() -> None:
    assert doctest.testmod(words).failed == 0


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"), (0, "0 ms"), (0.0004, "<1 ms"), (0.35, "350 ms"), (1.24, "1.2 s"), (42, "42 s"), (60, "1m"),
        (252, "4m 12s"), (3_700, "1h 1m"), (90_000, "1d 1h"), (float("inf"), "never"), (-3, "0 ms"),
    ],
)  # fmt: skip
def test_how_long(seconds: float | None, said: str) -> None:
    assert words.span(seconds) == said


@pytest.mark.parametrize(
    ("away", "said"), [(0, "now"), (12, "12s ago"), (-240, "in 4m"), (7_300, "2h ago"), (-200_000, "in 2d")]
)
def test_how_far(away: float, said: str) -> None:
    assert words.ago(NOW - timedelta(seconds=away), NOW) == said


def test_counts_that_were_capped_say_so() -> None:
    assert [words.number(10_000, 10_000), words.number(9_999, 10_000), words.number(None)] == ["10k+", "9,999", "–"]


def test_a_spark_of_nothing_is_none() -> None:
    assert words.spark([0, 0, 0]) is None
    assert words.spark([1]) is None
    drawn = words.spark([0, 2, 1])
    assert drawn is not None
    assert drawn.line == "M0.0 23.0L50.0 2.0L100.0 12.5"


def test_arguments_in_one_line() -> None:
    assert words.one_line({"a": 1, "b": "x"}) == 'a=1, b="x"'
    assert words.one_line({}) == ""
    assert len(words.one_line({str(n): "y" * 100 for n in range(50)})) == words.LINE


def test_library_frames_are_folded_and_own_ones_stand_open() -> None:
    found = traces.pieces(TRACE)
    assert [piece.kind for piece in found] == ["library", "error", "line", "own", "error"]
    assert [len(piece.frames) for piece in found] == [2, 0, 0, 1, 0]
    assert found[3].frames[0].head == "/app/shop/billing.py:7  charge"
    assert found[3].frames[0].code == "pay(\n    order,\n)"
    assert found[4].text == "shop.billing.Declined: <b>no</b>"


def test_what_is_no_traceback_is_shown_as_it_is() -> None:
    assert [piece.text for piece in traces.pieces("killed by signal 9\n")] == ["killed by signal 9"]
    assert traces.pieces("") == []


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Drain("empty"), "–"),
        (Drain("in", seconds=165_180.0), "1d 21h"),
        (Drain("grows", per_minute=40.2), "grows by 40/min"),
        (Drain("grows", per_minute=0.75), "grows by 0.8/min"),
        (Drain("steady"), "steady"),
        (Drain("never", reason="paused"), "never: paused"),
        (Drain("unknown", reason="nothing has ended in the last minutes"), "nothing has ended in the last minutes"),
    ],
)
def test_when_a_queue_will_be_empty_in_words(found: Drain, told: str) -> None:
    assert words.drain(found) == told
