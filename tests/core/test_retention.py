"""How long ended jobs are kept."""

from __future__ import annotations

import pytest

from treadle.core.job import State
from treadle.core.queue import DAY, FOR_EVER, Queue
from treadle.core.retention import RECORDS_KEPT, STATES, Rules, rules

NOW = 1_000 * DAY


@pytest.mark.parametrize(("state", "days"), [(State.SUCCEEDED, 7), (State.CANCELLED, 7), (State.FAILED, 30)])
def test_the_built_in_ages_hold_where_nothing_is_said(state: State, days: int) -> None:
    found = rules([Queue(name="mail")], state, NOW)
    for queue in ("mail", "without a row"):
        assert found.of(queue) == NOW - days * DAY
        assert found.lets_go(queue, NOW - days * DAY)
        assert not found.lets_go(queue, NOW - days * DAY + 0.001)
    assert set(STATES) == {State.SUCCEEDED, State.CANCELLED, State.FAILED}
    assert RECORDS_KEPT == 90 * DAY


def test_each_queue_has_its_own_age_and_for_ever_is_for_ever() -> None:
    queues = [
        Queue(name="short", keep_succeeded=60.0),
        Queue(name="none", keep_succeeded=0.0),
        Queue(name="all", keep_succeeded=FOR_EVER),
    ]
    found = rules(queues, State.SUCCEEDED, NOW)
    assert found == Rules({"short": NOW - 60, "none": NOW, "all": None}, NOW - 7 * DAY)
    assert found.latest() == NOW
    assert found.lets_go("none", NOW)
    assert not found.lets_go("all", 0.0)
    assert rules(queues, State.FAILED, NOW).of("all") == NOW - 30 * DAY


def test_one_queue_alone() -> None:
    queues = [Queue(name="mail", keep_failed=60.0), Queue(name="bulk")]
    only = rules(queues, State.FAILED, NOW, only="mail")
    assert (only.of("mail"), only.of("bulk"), only.latest()) == (NOW - 60, None, NOW - 60)
    assert rules([], State.FAILED, NOW, only="new").of("new") == NOW - 30 * DAY


def test_where_all_is_kept_nothing_may_go() -> None:
    assert rules([Queue(name="mail", keep_failed=FOR_EVER)], State.FAILED, NOW, only="mail").latest() is None
