"""Health: who is alive, who is ready, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core.health import Signs, is_alive, not_ready


def test_a_pod_that_is_well_is_alive_and_ready() -> None:
    assert is_alive(Signs())
    assert not_ready(Signs()) == []


@pytest.mark.parametrize(
    ("signs", "alive", "why"),
    [
        ({"started": False, "heart_alive": False}, True, "it is starting"),
        ({"stopping": True}, True, "it is shutting down"),
        ({"loop_alive": False}, False, "its event loop is dead"),
        ({"heart_alive": False}, False, "its heart has stopped"),
        ({"turner_alive": False}, True, "its turns have ended"),
        ({"services_alive": False}, True, "one of its services has ended"),
        ({"beat_age": 25.1}, True, "its last answered beat is 25 s old"),
        ({"storage_age": 15.1}, True, "the storage has not answered for 15 s"),
    ],
)
def test_each_sign_by_itself(signs: dict[str, Any], alive: bool, why: str) -> None:
    assert is_alive(Signs(**signs)) is alive
    assert not_ready(Signs(**signs)) == [why]


def test_a_pod_that_ends_has_stopped_its_heart_by_itself() -> None:
    assert is_alive(Signs(stopping=True, heart_alive=False))
    assert not is_alive(Signs(stopping=True, heart_alive=False, loop_alive=False))


def test_the_limits_follow_the_lease() -> None:
    assert not_ready(Signs(beat_age=24.9, storage_age=14.9)) == []
    assert not_ready(Signs(beat_age=2.6, lease=3.0, beat=1.0)) == ["its last answered beat is 3 s old"]
    assert not_ready(Signs(storage_age=40.0, beat_age=40.0, lease=90.0, beat=30.0)) == []
