"""The checker is itself checked: a history in which one event was dropped, doubled or swapped is rejected."""

from __future__ import annotations

import msgspec
import pytest

from treadle.core.job import Job, State
from treadle.testing.checker import Checker
from treadle.testing.history import Event, History, read

replace = msgspec.structs.replace


def a_history() -> tuple[list[Event], list[Job]]:
    """Two jobs: one succeeds at its second attempt, after its pod was lost; one fails at its first."""
    history = History()
    add = history.add
    add("registered", 0, pod="p1", lease=30.0)
    add("registered", 0, pod="p2", lease=30.0)
    add("inserted", 1, id="a", key="k", max_attempts=3)
    add("asked", 1, ids=("a",), how="ok")
    add("claimed", 2, id="a", token="t1", pod="p1")
    add("inserted", 3, id="b", max_attempts=1)
    add("asked", 3, ids=("b",), how="ok")
    add("claimed", 4, id="b", token="t2", pod="p2")
    add("applied", 5, id="b", token="t2", why="failed", to="failed")
    add("beat", 10, pod="p1", lease=30.0)
    add("applied", 41, id="a", token="t1", why="rescued", to="ready", rescue=True)
    add("claimed", 42, id="a", token="t3", pod="p2")
    add("effect", 43, id="a", token="t3")
    add("applied", 44, id="a", token="t3", why="succeeded", to="succeeded")
    rows = [
        Job(id="a", task="work", queue="default", state=State.SUCCEEDED, attempt=2, max_attempts=3),
        Job(id="b", task="work", queue="default", state=State.FAILED, attempt=1, max_attempts=1),
    ]
    return history.events, rows


def broken(events: list[Event], rows: list[Job]) -> set[int]:
    return {each.number for each in Checker(events, rows).broken}


def test_an_honest_history_passes() -> None:
    assert broken(*a_history()) == set()


@pytest.mark.parametrize("kind", ["inserted", "claimed", "applied", "effect"])
def test_a_history_with_an_event_dropped_is_rejected(kind: str) -> None:
    events, rows = a_history()
    for number, event in enumerate(events):
        if event.kind == kind:
            assert broken(events[:number] + events[number + 1 :], rows), event


@pytest.mark.parametrize("kind", ["inserted", "claimed", "applied"])
def test_a_history_with_an_event_doubled_is_rejected(kind: str) -> None:
    events, rows = a_history()
    for number, event in enumerate(events):
        if event.kind == kind:
            assert broken([*events[: number + 1], event, *events[number + 1 :]], rows), event


def test_two_tokens_swapped_are_rejected() -> None:
    events, rows = a_history()
    swapped = {"t1": "t3", "t3": "t1"}
    for number, event in enumerate(events):
        if event.token in swapped and event.kind != "claimed":
            wrong = replace(event, token=swapped[event.token])
            assert broken([*events[:number], wrong, *events[number + 1 :]], rows), event


def test_what_each_invariant_sees() -> None:
    events, rows = a_history()
    assert 1 in broken(events, rows[1:]), "a job is lost"
    assert 2 in broken(events, [*rows, replace(rows[0], id="ghost")]), "a job that nobody asked for"
    refused = [Event(kind="inserted", at=49, id="c"), Event(kind="asked", at=50, ids=("c",), how="fail")]
    assert 2 in broken([*events, *refused], [*rows, replace(rows[0], id="c")]), "a refused job is there"
    assert 3 in broken(events, [replace(rows[0], state=State.FAILED), rows[1]]), "the row says something else"
    early = [replace(each, at=39.0) if each.why == "rescued" else each for each in events]
    assert 5 in broken(early, rows), "rescued before the lease was over"
    again = [*events, Event(kind="claimed", at=50, id="a", token="t4", pod="p1")]
    assert 8 in broken(again, rows), "claimed after its end"
    assert 9 in broken(events, [replace(rows[0], attempt=1), rows[1]]), "a charge is missing"
    twin = Event(kind="inserted", at=20, id="c", key="k")
    assert 10 in broken([*events[:9], twin, *events[9:]], rows), "two live jobs with one key"
    fire = Event(kind="fired", at=1, schedule="s", fire_at=60.0)
    assert 10 in broken([*events, fire, fire], rows), "a schedule fired twice"
    assert 12 in broken(events, [replace(rows[0], state=State.READY), rows[1]]), "not ended"
    heard = [Event(kind="heard", at=42, pod="p1"), Event(kind="effect", at=70, id="a", token="t1")]
    assert 14 in broken([*events, *heard], rows), "a lost run went on"


def test_a_history_is_read_again_and_a_line_that_was_cut_is_left_out() -> None:
    history = History()
    history.add("claimed", 1.5, id="a", token="t", pod="p")
    history.add("beat", 2.5, pod="p", lease=30.0)
    assert read(history.lines()) == history.events
    assert read(history.lines()[:-3]) == history.events[:1]
