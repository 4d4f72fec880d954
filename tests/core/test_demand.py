"""How much a pod asks for, and how long it rests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.demand import Ask, Group, Room, plan, rest, share
from treadle.core.queue import Queue

A, B = frozenset({"a"}), frozenset({"b"})


def a_room(
    queue: str = "mail", *, slots: int = 10, running: int = 0, most: int | None = None, **groups: int | None
) -> Room:
    named = {"a": A, "b": B}
    members = tuple(Group(named[name], places) for name, places in groups.items()) or (Group(A, None),)
    return Room(queue, slots, running, members, most)


def test_a_pod_asks_for_its_free_slots() -> None:
    assert plan([a_room(slots=10, running=3)], 512) == (Ask("mail", 7, ((A, 7),)),)


def test_a_full_queue_is_left_out() -> None:
    assert plan([a_room(slots=2, running=2), a_room("rest", slots=1)], 512) == (Ask("rest", 1, ((A, 1),)),)


def test_tasks_whose_executor_is_full_are_left_out() -> None:
    assert plan([a_room(slots=5, a=None, b=0)], 512) == (Ask("mail", 5, ((A, 5),)),)
    assert plan([a_room(slots=5, b=0)], 512) == ()


def test_a_group_is_bounded_by_its_executors_places() -> None:
    assert plan([a_room(slots=5, a=2, b=1)], 512) == (Ask("mail", 3, ((A, 2), (B, 1))),)


def test_a_pod_with_no_tasks_asks_for_nothing() -> None:
    assert plan([Room("mail", 5, 0, (Group(frozenset(), None),))], 512) == ()


def test_the_clusters_total_bounds_what_is_asked_for() -> None:
    assert plan([a_room(slots=10, running=1, most=4)], 512) == (Ask("mail", 3, ((A, 3),)),)
    assert plan([a_room(slots=10, running=5, most=4)], 512) == ()
    assert plan([a_room(slots=10, most=0)], 512) == ()


def test_when_more_is_free_than_a_batch_holds_each_queue_gets_its_part() -> None:
    asks = plan([a_room("big", slots=300), a_room("small", slots=100)], 100)
    assert [(ask.queue, ask.limit) for ask in asks] == [("big", 75), ("small", 25)]
    assert asks[0].groups == ((A, 75),)


def test_a_small_queue_is_never_cut_to_nothing() -> None:
    asks = plan([a_room("big", slots=10_000), a_room("small", slots=1)], 100)
    assert asks[1].limit == 1


@given(st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=6), st.integers(1, 512))
def test_nothing_is_ever_asked_for_that_could_not_start(rooms: list[tuple[int, int]], batch: int) -> None:
    made = [a_room(f"q{n}", slots=slots, running=min(running, slots)) for n, (slots, running) in enumerate(rooms)]
    asks = {ask.queue: ask.limit for ask in plan(made, batch)}
    for room in made:
        assert 0 <= asks.get(room.queue, 0) <= room.slots - room.running
    assert sum(asks.values()) <= batch + len(made)


@pytest.mark.parametrize(("total", "pods", "expected"), [(10, 3, 4), (10, 1, 10), (1, 5, 1), (0, 2, 0), (10, 0, 10)])
def test_a_share_is_rounded_up(total: int, pods: int, expected: int) -> None:
    assert share(Queue(name="mail", max_workers=total), pods) == expected


def test_without_a_total_there_is_no_share() -> None:
    assert share(Queue(name="mail"), 3) is None
    assert share(None, 3) is None


def test_the_poll_has_jitter_of_a_fifth() -> None:
    assert (rest(None, 1.0, 0.0), rest(None, 1.0, 0.5), rest(None, 1.0, 1.0)) == (0.8, 1.0, pytest.approx(1.2))


def test_what_falls_due_sooner_ends_the_rest_sooner() -> None:
    assert rest(0.25, 1.0, 0.5) == 0.25
    assert rest(5.0, 1.0, 0.5) == 1.0
