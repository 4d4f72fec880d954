"""When the next turn leaves: at once, except in a stream of small ones."""

from __future__ import annotations

from treadle.core.pace import ENOUGH, EVERY, RUSH, Pace, follow


def waits(gaps: list[float], *, ended: int = 1, is_pressed: bool = False) -> list[float]:
    """How long each of several turns waits; a gap is from when one left until the next could leave."""
    pace, found = Pace(), []
    for gap in gaps:
        pace, wait = follow(pace, pace.began + gap if found else 100.0, ended=ended, is_pressed=is_pressed)
        found.append(wait)
    return found


def test_a_few_turns_in_a_row_leave_at_once() -> None:
    assert waits([0.001] * RUSH) == [0.0] * RUSH


def test_in_a_stream_a_turn_leaves_every_so_often() -> None:
    late = waits([0.001] * (RUSH + 20))[RUSH:]
    assert all(abs(wait - (EVERY - 0.001)) < 1e-9 for wait in late)


def test_a_stream_that_thins_out_is_none() -> None:
    assert waits([0.001] * 20 + [EVERY] + [0.001] * (RUSH - 1))[20:] == [0.0] * RUSH


def test_where_jobs_wait_for_slots_nothing_waits_for_company() -> None:
    assert waits([0.001] * 30, is_pressed=True) == [0.0] * 30


def test_many_that_have_ended_are_company_enough() -> None:
    assert waits([0.001] * 30, ended=ENOUGH) == [0.0] * 30
    assert waits([0.001] * 30, ended=ENOUGH - 1)[-1] > 0
