"""The protocols hold in every state that they can reach, and each broken twin fails, by the shortest way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .answer_protocol import Answers
from .explorer import Model, Step, explore
from .protocols import Cancel, Drain, Lease, Schedules, Suspects, Turn, Unique

WHOLE = [Answers(), Lease(), Cancel(), Unique(), Schedules(), Drain(), Turn(), Suspects()]


@pytest.mark.parametrize("model", WHOLE, ids=lambda model: type(model).__name__)
def test_a_protocol_holds_in_every_state(model: Model, record_property: Any) -> None:
    found = explore(model)
    assert found.why is None, found
    record_property(f"states of {type(model).__name__}", found.states)
    assert found.states > 10


@pytest.mark.parametrize(
    ("twin", "why", "length", "last"),
    [
        (Answers(meets=False), "it waits for an answer that is there", 4, "wait"),
        (Answers(claims=False), "it got another attempt's answer", 7, "answer 0"),
        (Answers(once=False), "two callers were told that they won", 4, "answer 0"),
        (Answers(looks_again=False), "a wait was ended that somebody had kept alive", 6, "end the wait"),
        (Lease(fence=False), "a zombie has ended another's run", 6, "finish 0"),
        (Lease(looks_again=False), "a pod with a live lease was robbed", 5, "rescue 1"),
        (Cancel(guarded=False), "a job that was cancelled is to run again", 4, "write retry"),
        (Unique(index=False), "two live jobs have one key", 4, "insert 1"),
        (Unique(held_while_running=False), "two live jobs have one key", 5, "insert 1"),
        (Schedules(compares_cursor=False), "one fire time gave two jobs", 5, "fire 1"),
        (Schedules(compares_version=False), "it fired though it was paused", 4, "fire 0"),
        (Drain(beats=False), "a job was taken for crashed that was only told to stop", 5, "rescue"),
        (Drain(uncharged=False), "deploys have used up its attempts", 8, "release"),
        (Drain(releases_first=False), "a job was taken for crashed that was only told to stop", 4, "rescue"),
        (Turn(compares=False), "it never ends", 3, "fault: claim's answer lost"),
        (Turn(repeatable=False), "a pod was told that its accepted finish came too late", 8, "finish refused"),
        (Suspects(apart=False), "an innocent job was called poison", 9, "fault: crash"),
    ],
    ids=lambda value: str(value) if isinstance(value, Model) else "",
)
def test_its_broken_twin_is_found(twin: Model, why: str, length: int, last: str) -> None:
    found = explore(twin)
    assert (found.why, len(found.way), found.way[-1]) == (why, length, last), found


# The explorer itself -------------------------------------------------------------------------------------------------


class Counter(Model):
    """Counts to 9, by ones or by a leap that cannot be taken back."""

    start = 0

    def steps(self, state: int) -> Iterator[Step]:
        if state < 9:
            yield "one", state + 1
        if state == 3:
            yield "fault: leap", 100
        if state == 100:
            yield "turn on the spot", 100

    def wrong(self, state: int) -> str | None:
        return None

    def over(self, state: int) -> bool:
        return state == 9


def test_a_state_without_a_way_out_is_found() -> None:
    found = explore(Counter())
    assert (found.states, found.why) == (11, "it never ends")
    assert found.way == ("one", "one", "one", "fault: leap")


def test_a_model_without_bounds_is_refused() -> None:
    class Endless(Counter):
        def steps(self, state: int) -> Iterator[Step]:
            yield "one", state + 1

    with pytest.raises(OverflowError, match="bound the model"):
        explore(Endless(), most=50)
