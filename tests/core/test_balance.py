"""How a cluster-wide total is shared: fair, sticky, wholly, and never where it cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.balance import HELD_FOR, UNUSED_FOR, Idle, Member, Share, capacity, changes, divide, watch
from treadle.core.pod import Pod, PodCard, PodStats
from treadle.core.queue import Queue, QueueStats


def members(*slots_and_shares: tuple[int, int]) -> list[Member]:
    return [Member(f"p{n}", slots, share) for n, (slots, share) in enumerate(slots_and_shares)]


def a_pod(
    id: str, *, slots: int = 50, share: int | None = None, running: int | None = None, at: float = 1000.0, **more: Any
) -> Pod:
    card = PodCard(
        id=id,
        label=id,
        host="h",
        pid=1,
        version="",
        queues=more.pop("queues", {"mail": slots}),
        tasks=("t",),
        lease=30.0,
        slots=more.pop("pod_slots", None),
    )
    stats = None if running is None else PodStats(running={"mail": running}, quiet=more.pop("says_quiet", False))
    fields: dict[str, Any] = {"started_at": 0.0, "beat_at": at, "lease_left": 30.0, "stats": stats}
    return Pod(card=card, shares={} if share is None else {"mail": share}, **{**fields, **more})


def a_queue(total: int | None = 10, *, ready: int = 0, **more: Any) -> QueueStats:
    return QueueStats(queue=Queue(name="mail", max_workers=total, **more), ready=ready)


@pytest.mark.parametrize(
    ("total", "given", "expected"),
    [
        (10, [(50, 0)] * 3, [4, 3, 3]),
        (10, [(50, 0)] * 2, [5, 5]),
        (10, [(50, 3), (50, 4), (50, 3)], [3, 4, 3]),  # who has the larger share keeps it
        (10, [(50, 4), (50, 3)], [5, 5]),
        (10, [(2, 0), (50, 0)], [2, 8]),  # what slots cannot take goes to the others
        (10, [(2, 0), (3, 0)], [2, 3]),  # and nobody gets more than there are
        (0, [(50, 5)], [0]),
        (2, [(50, 0), (50, 0), (50, 1)], [1, 0, 1]),
        (10, [], []),
        (10, [(0, 0)], [0]),
        (11, [(50, 5), (50, 5), (50, 0)], [4, 4, 3]),
    ],
)
def test_a_total_is_shared(total: int, given: list[tuple[int, int]], expected: list[int]) -> None:
    assert list(divide(total, members(*given)).values()) == expected


def test_what_lies_idle_goes_to_those_who_use_theirs() -> None:
    found = divide(10, [Member("idle", 50, 5, used=1), Member("busy", 50, 5)])
    assert found == {"idle": 1, "busy": 9}


def test_what_nobody_else_has_room_for_stays_where_it_was_not_used() -> None:
    assert divide(10, [Member("idle", 50, 5, used=1), Member("busy", 6, 5)]) == {"idle": 4, "busy": 6}
    assert divide(10, [Member("a", 50, 5, used=0), Member("b", 50, 5, used=0)]) == {"a": 5, "b": 5}


parts = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


@given(st.integers(0, 400), parts, st.lists(st.none() | st.integers(0, 60), min_size=12, max_size=12))
def test_the_whole_total_is_given_out_and_nobody_gets_more_than_it_has_slots(
    total: int, given: list[tuple[int, int]], used: list[int | None]
) -> None:
    made = [Member(each.pod, each.slots, each.share, use) for each, use in zip(members(*given), used, strict=False)]
    found = divide(total, made)
    assert sum(found.values()) == min(total, sum(each.slots for each in made))
    assert all(0 <= found[each.pod] <= each.slots for each in made)


@given(st.integers(0, 400), parts)
def test_no_two_pods_differ_by_more_than_one_where_their_slots_allow(total: int, given: list[tuple[int, int]]) -> None:
    made = members(*given)
    found = divide(total, made)
    most = max(found.values(), default=0)
    assert all(found[each.pod] >= most - 1 or found[each.pod] == each.slots for each in made)


@given(st.integers(0, 400), parts)
def test_shared_again_nothing_moves(total: int, given: list[tuple[int, int]]) -> None:
    made = members(*given)
    found = divide(total, made)
    assert divide(total, [Member(each.pod, each.slots, found[each.pod]) for each in reversed(made)]) == found


@given(st.integers(0, 100), st.integers(1, 8), st.data())
def test_when_one_comes_or_goes_no_more_moves_than_must(total: int, count: int, data: Any) -> None:
    before = divide(total, members(*[(100, 0)] * count))
    left = data.draw(st.sampled_from(sorted(before)))
    stayed = [Member(pod, 100, share) for pod, share in before.items() if pod != left]
    after = divide(total, stayed)
    assert all(after[pod] >= before[pod] for pod in after)  # only the share of the one that left moves
    joined = divide(total, [*(Member(pod, 100, share) for pod, share in before.items()), Member("new", 100, 0)])
    assert all(joined[pod] <= before[pod] for pod in before)


# What is written ----------------------------------------------------------------------------------------------------


def test_only_differences_are_written() -> None:
    pods = [a_pod("a", share=4), a_pod("b", share=3), a_pod("c")]
    assert changes([a_queue()], pods, {}) == (Share("mail", "c", 3),)
    pods[2] = a_pod("c", share=3)
    assert changes([a_queue()], pods, {}) == ()


def test_quiet_lapsed_and_lost_pods_get_none_and_what_they_had_is_removed() -> None:
    gone = [
        a_pod("asked", share=2, wish="quiet"),
        a_pod("stopping", share=2, wish="stop"),
        a_pod("says", share=2, running=0, says_quiet=True),
        a_pod("lapsed", share=2, lease_left=0.0),
        a_pod("lost", share=2, lost=True),
        a_pod("elsewhere", queues={"other": 5}),
    ]
    found = changes([a_queue()], [a_pod("a", share=5), *gone], {})
    assert found == (Share("mail", "a", 10), *(Share("mail", each.card.id, None) for each in gone[:-1]))


def test_a_total_that_was_taken_back_leaves_no_shares() -> None:
    assert changes([a_queue(None)], [a_pod("a", share=5)], {}) == (Share("mail", "a", None),)
    assert changes([a_queue(0)], [a_pod("a", share=5)], {}) == (Share("mail", "a", 0),)


def test_a_pods_total_bounds_its_share() -> None:
    assert capacity(a_pod("a", slots=50, pod_slots=6), "mail") == 6
    assert capacity(a_pod("a", slots=5, pod_slots=6), "mail") == 5
    assert capacity(a_pod("a"), "other") == 0
    found = changes([a_queue(10)], [a_pod("a", pod_slots=2), a_pod("b")], {})
    assert found == (Share("mail", "a", 2), Share("mail", "b", 8))


# What lies idle -----------------------------------------------------------------------------------------------------


def looks(*pods: Pod, idle: dict[tuple[str, str], Idle] | None = None, ready: int = 5) -> dict[tuple[str, str], Idle]:
    return watch(idle or {}, [a_queue(ready=ready)], pods)


def test_a_share_that_lies_unused_while_work_waits_moves_on_and_comes_back() -> None:
    busy = a_pod("busy", share=5, running=5)
    idle = looks(a_pod("idle", share=5, running=1), busy)
    assert idle == {("mail", "idle"): Idle(1000.0, 1)}
    idle = looks(a_pod("idle", share=5, running=2, at=1005.0), busy, idle=idle)
    assert changes([a_queue(ready=5)], [a_pod("idle", share=5, running=2), busy], idle) == ()
    later = a_pod("idle", share=5, running=0, at=1000.0 + UNUSED_FOR)
    idle = looks(later, busy, idle=idle)
    assert idle == {("mail", "idle"): Idle(1000.0, 2, 1010.0)}
    assert changes([a_queue(ready=5)], [later, busy], idle) == (Share("mail", "idle", 2), Share("mail", "busy", 8))
    # So it stays for a while, work or no work, however much of the little it uses; then it is offered its part again.
    held = a_pod("idle", share=2, running=2, at=1010.0 + HELD_FOR - 1)
    assert looks(held, busy, idle=idle, ready=0) == idle
    over = a_pod("idle", share=2, running=2, at=1010.0 + HELD_FOR)
    assert looks(over, busy, idle=idle) == {}


def test_a_share_that_is_used_in_between_was_not_unused() -> None:
    idle = looks(a_pod("a", share=5, running=1))
    idle = looks(a_pod("a", share=5, running=5, at=1005.0), idle=idle)
    assert idle == {}


def test_nothing_moves_while_nothing_waits_or_nobody_may_claim() -> None:
    pod = a_pod("a", share=5, running=1)
    assert looks(pod, ready=0) == {}
    assert watch({}, [a_queue(ready=5, paused=True)], [pod]) == {}
    assert watch({}, [a_queue(ready=5, cool_until=2000.0)], [pod]) == {}
    assert looks(a_pod("a", share=5, running=1, wish="quiet")) == {}
    assert looks(a_pod("a", share=5)) == {}  # it has not spoken yet
    assert looks(a_pod("a", running=1)) == {}  # it has no share yet
