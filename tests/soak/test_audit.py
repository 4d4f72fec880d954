"""What is made of the lines that the database writes about itself."""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.core.job import Job, State
from treadle.testing.checker import Checker
from treadle.testing.history import Event

from . import audit


def row(op: str, **given: Any) -> audit.Row:
    names = "at id was became old_token token old_finished finished old_attempt attempt old_crashes crashes pod key"
    empty: dict[str, Any] = dict.fromkeys([*names.split(), "max_attempts", "lease_until", "card", "tx"])
    return {**empty, "at": 1.0, "op": op, "crashes": 0, "old_crashes": 0, **given}


def a_life() -> list[audit.Row]:
    """On a storage with two tables: inserted, claimed, rescued, claimed, succeeded."""
    card = msgspec.json.encode({"pid": 7}).decode()
    claim = {"was": "ready", "became": "running", "old_attempt": 0, "attempt": 1}
    return [
        row("registered", at=1.0, id="p1", lease_until=4.0, card=card),
        row("registered", at=1.0, id="p2", lease_until=9.0, card=msgspec.json.encode({"pid": 8}).decode()),
        row("live+", at=1.0, id="a", became="ready", attempt=0, tx="1"),
        row("job", at=2.0, id="a", **claim, token="t1", pod="p1", tx="2"),
        row("job", at=2.5, id="a", was="running", became="ready", old_token="t1", token="t1", old_attempt=1, attempt=1,
            crashes=1, tx="3"),
        row("job", at=2.6, id="a", **{**claim, "old_attempt": 1, "attempt": 2}, token="t2", pod="p2", tx="4"),
        row("live-", at=2.8, id="a", was="running", old_token="t2", old_attempt=2, old_crashes=1, tx="5"),
        row("ended+", at=2.8, id="a", became="succeeded", token="t2", finished="t2", attempt=2, crashes=1, tx="5"),
    ]  # fmt: skip


DONE = [Job(id="a", task="work", queue="default", state=State.SUCCEEDED, attempt=2)]
EFFECT = Event(kind="effect", at=2.7, id="a", token="t2")


def history(rows: list[audit.Row], *others: Event, died: float | None = 2.1) -> list[Event]:
    deaths = [] if died is None else [(7, died)]
    return audit.events(audit.moves(rows), [EFFECT, *others], deaths, lease=3.0, offset=0.0)


def broken(events: list[Event]) -> set[int]:
    return {each.number for each in Checker(events, DONE).broken}


def test_the_two_halves_of_an_end_are_one_move() -> None:
    events = history(a_life())
    assert broken(events) == set()
    end = events[-1]
    assert (end.kind, end.token, end.to, end.charged) == ("applied", "t2", "succeeded", True)


def test_an_enqueue_repeated_after_the_end_of_its_job_is_no_move() -> None:
    again = [row("live+", at=3.0, id="a", became="ready", tx="9"), row("live-", at=3.0, id="a", was="ready", tx="9")]
    assert history([*a_life(), *again]) == history(a_life())


def test_a_rescue_under_a_live_lease_is_seen_unless_the_process_was_dead() -> None:
    assert broken(history(a_life(), died=None)) == {5}
    assert broken(history(a_life(), died=2.55)) == {5}, "it died after the rescue"


def test_what_an_owner_writes_under_a_token_that_is_not_current_is_seen() -> None:
    rows = a_life()
    rows[-1]["finished"] = "t1"
    assert 4 in broken(history(rows))


def test_a_deleted_job_is_missed() -> None:
    gone = row("ended-", at=3.0, id="a", was="succeeded", tx="9")
    assert 13 in {each.number for each in Checker(history([*a_life(), gone]), []).broken}


def test_told_and_fenced() -> None:
    told = Event(kind="told", at=2.9, id="a", token="t2")
    assert broken(history(a_life(), told, Event(kind="fenced", at=2.9, id="a", token="t2"))) == set()
    assert broken(history(a_life(), Event(kind="told", at=2.9, id="a", token="t3"))) == {8}
    assert broken(history(a_life(), Event(kind="fenced", at=2.9, id="a", token="t1"))) == {7}


def test_recovery_is_from_the_death_to_the_next_claim() -> None:
    (took,) = audit.recoveries(history(a_life()))
    assert abs(took.claimable - 0.4) < 1e-9
    assert abs(took.claimed - 0.5) < 1e-9
    assert audit.recoveries(history(a_life()), apart_from=[2.2]) == []
