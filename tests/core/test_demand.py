"""How much a pod asks for, and how long it rests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.demand import (
    Ask,
    Group,
    Portion,
    Room,
    first_pause,
    is_alone,
    most,
    plan,
    rest,
    share,
    threads,
    within,
)
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


@pytest.mark.parametrize(("total", "given", "expected"), [(10, 3, 3), (10, 0, 0), (2, 4, 2), (0, 4, 0)])
def test_a_share_that_was_given_counts_but_never_above_the_total(total: int, given: int, expected: int) -> None:
    assert share(Queue(name="mail", max_workers=total), 2, given) == expected


def test_without_a_total_a_share_that_was_left_over_counts_no_more() -> None:
    assert share(Queue(name="mail"), 2, 4) is None


def places(slots: int, *rooms: Room, hungry: str | None = None, **portions: tuple[int, int]) -> dict[str, int | None]:
    named = {name: Portion(*each) for name, each in portions.items()}
    among = {room.queue for room in rooms} if hungry is None else set(hungry.split())
    return {room.queue: room.places for room in within(rooms, slots, named, among)}


def test_places_of_the_pod_are_shared_by_weight() -> None:
    a, b = a_room("a"), a_room("b")
    assert places(10, a, b) == {"a": 5, "b": 5}
    assert places(8, a, b, a=(0, 3)) == {"a": 6, "b": 2}


def test_what_runs_already_counts_for_its_queue() -> None:
    a, b = a_room("a", running=6), a_room("b")
    assert places(8, a, b) == {"a": 0, "b": 2}
    assert places(10, a_room("a", running=7), a_room("b", running=2)) == {"a": 0, "b": 1}
    assert places(4, a, b) == {"a": 0, "b": 0}  # more runs than there are places: they were lowered meanwhile


def test_a_queue_without_work_leaves_its_part_to_the_others_but_for_its_least() -> None:
    a, b = a_room("a"), a_room("b")
    assert places(8, a, b, hungry="a") == {"a": 8}
    assert places(8, a, b, hungry="a", b=(2, 1)) == {"a": 6}
    assert places(8, a, a_room("b", running=1), hungry="a", b=(2, 1)) == {"a": 6}


def test_the_least_comes_first() -> None:
    a, b = a_room("a", running=7), a_room("b")
    assert places(8, a, b, b=(1, 1), a=(0, 100)) == {"a": 0, "b": 1}
    assert places(8, a_room("a"), b, a=(3, 1)) == {"a": 6, "b": 2}  # the rest, 5, as even as can be
    assert places(1, a_room("a"), b, a=(3, 1), b=(3, 1)) == {"a": 1, "b": 0}


def test_a_queue_gets_no_more_than_it_can_use_and_the_others_get_the_rest() -> None:
    assert places(10, a_room("a", slots=2), a_room("b")) == {"a": 2, "b": 8}
    assert places(10, a_room("a", most=1), a_room("b"), a=(4, 1)) == {"a": 1, "b": 9}
    assert places(10, a_room("a", b=0), a_room("b")) == {"a": 0, "b": 10}


def test_what_the_pod_lets_a_queue_start_bounds_what_is_asked_for() -> None:
    rooms = within([a_room("a"), a_room("b")], 3, {}, {"a", "b"})
    assert [(ask.queue, ask.limit) for ask in plan(rooms, 512)] == [("a", 2), ("b", 1)]
    assert plan(within([a_room("a", running=3)], 3, {}, {"a"}), 512) == ()


@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 5), st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 60),
)
def test_all_queues_together_never_get_more_than_the_pod_has(
    given_rooms: list[tuple[int, int, int, int, bool]], slots: int
) -> None:
    rooms = [a_room(f"q{n}", slots=own, running=min(run, own)) for n, (own, run, *_) in enumerate(given_rooms)]
    portions = {f"q{n}": Portion(least, weight) for n, (_, _, least, weight, _) in enumerate(given_rooms)}
    hungry = {f"q{n}" for n, each in enumerate(given_rooms) if each[4]}
    found = within(rooms, slots, portions, hungry)
    assert {room.queue for room in found} == hungry
    given_out = sum(room.places or 0 for room in found)
    free = max(0, slots - sum(room.running for room in rooms))
    kept = sum(max(0, min(portions[r.queue].least, r.slots) - r.running) for r in rooms if r.queue not in hungry)
    wanted = sum(room.slots - room.running for room in found)
    assert all(0 <= (room.places or 0) <= room.slots - room.running for room in found)
    assert given_out <= free
    assert given_out >= min(wanted, free - kept)  # and nothing lies idle that somebody wants and nobody is promised


def test_without_a_total_there_is_no_share() -> None:
    assert share(Queue(name="mail"), 3) is None
    assert share(None, 3) is None


def test_the_poll_has_jitter_of_a_fifth() -> None:
    assert (rest(None, 1.0, 0.0), rest(None, 1.0, 0.5), rest(None, 1.0, 1.0)) == (0.8, 1.0, pytest.approx(1.2))


def test_what_falls_due_sooner_ends_the_rest_sooner() -> None:
    assert rest(0.25, 1.0, 0.5) == 0.25
    assert rest(5.0, 1.0, 0.5) == 1.0


def test_a_pod_is_alone_until_it_hears_of_another() -> None:
    assert is_alone({})
    assert is_alone({"a": 1, "b": 1})
    assert not is_alone({"a": 1, "b": 2})


def test_a_pod_that_is_alone_claims_at_once_and_a_fleet_not_as_one() -> None:
    assert first_pause({"a": 1}, 0.2, 0.5) == 0.0
    assert first_pause({"a": 3}, 0.2, 0.5) == 0.1
    assert first_pause({}, 0.2, 0.5) == 0.1


def test_where_there_are_second_turns_each_takes_half_of_the_slots() -> None:
    assert most(500, 500, 100, alone=True) == 250
    assert most(100, 500, 100, alone=True) == 100
    assert most(500, 199, 100, alone=True) == 500
    assert most(500, 500, None, alone=True) == 500
    assert most(500, 500, 100, alone=False) == 500


@pytest.mark.parametrize(
    ("slots", "given", "expected"),
    [(40, None, 40), (300, None, 100), (2, None, 10), (40, 3, 3), (2, 300, 300)],
)
def test_threads_follow_the_slots_unless_a_number_was_given(slots: int, given: int | None, expected: int) -> None:
    assert threads(slots, given=given, most=100, spare=10) == expected


def test_spare_threads_are_no_more_than_there_may_be_at_all() -> None:
    assert threads(2, given=None, most=5, spare=10) == 5
