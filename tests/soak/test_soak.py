"""A while of trouble on each storage; and its history, spoilt, is rejected."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable

import msgspec
import pytest

from treadle.core.job import Job
from treadle.testing.checker import Checker
from treadle.testing.history import Event

from . import campaign
from .conftest import SOAK

SECONDS = 25.0


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["sqlite", "postgres"])
def test_a_while_of_trouble(storage: str, record_property: Callable[[str, object], None]) -> None:
    seed = secrets.token_hex(4)
    report, events, jobs = campaign.carry_out(storage, SECONDS, seed)
    record_property(SOAK, report.text())
    assert report.passed, f"{report.text()}\nagain: make soak STORAGE={storage} MINUTES={SECONDS / 60:g} SEED={seed}"
    assert report.kills > 0
    assert report.recoveries[campaign.CLAIMED][0], "nobody was killed with a job in hand"
    assert report.states["succeeded"] > 50
    _is_rejected_when_spoilt(events, jobs, random.Random(seed))


def _is_rejected_when_spoilt(events: list[Event], jobs: list[Job], chance: random.Random) -> None:
    """A checker that a real history passes must not be one that everything passes."""
    for kind in ("inserted", "claimed", "applied"):
        places = [n for n, event in enumerate(events) if event.kind == kind]
        for n in chance.sample(places, 5):
            assert Checker([*events[:n], *events[n + 1 :]], jobs).broken, f"dropped: {events[n]}"
            assert Checker([*events[:n], events[n], *events[n:]], jobs).broken, f"doubled: {events[n]}"
    ends = [n for n, event in enumerate(events) if event.kind == "applied" and event.token]
    one, other = chance.sample(ends, 2)
    swapped = [*events]
    swapped[one] = msgspec.structs.replace(events[one], token=events[other].token)
    swapped[other] = msgspec.structs.replace(events[other], token=events[one].token)
    assert Checker(swapped, jobs).broken, "two tokens swapped"
    accepted = {(event.id, event.token) for event in events if event.kind == "applied" and event.to == "succeeded"}
    effects = [n for n, event in enumerate(events) if event.kind == "effect" and (event.id, event.token) in accepted]
    n = chance.choice(effects)
    assert Checker([*events[:n], *events[n + 1 :]], jobs).broken, "an effect is missing"
    told = Event(kind="told", at=events[-1].at, id=jobs[0].id, token="never")
    assert Checker([*events, told], jobs).broken, "a pod was told what is not so"
