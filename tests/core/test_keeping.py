"""Kept requests (semantics, area 2: keep_last, debounce)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from treadle.core import keep_last, lifecycle
from treadle.core.backoff import Retry
from treadle.core.explain import Evidence, explain
from treadle.core.job import ENDS_RUN, LIVE, TERMINAL, ErrorEntry, Job, NewJob, State, UniqueClaim
from treadle.core.outcome import (
    Crashed,
    Interrupted,
    Outcome,
    Raised,
    Snoozed,
    Stopped,
    Succeeded,
    Throttled,
    TimedOut,
    Undecodable,
    Waits,
)
from treadle.core.unique import Unique, due
from treadle.core.view import job_view

ERROR = ErrorEntry(attempt=2, kind="error", type="ValueError", message="it broke", place="m:f")
GOING_ON: list[Outcome] = [Raised(ERROR, after=3.0), TimedOut(ERROR), Crashed(ERROR), Snoozed(2.0), Interrupted()]
ENDING: list[Outcome] = [Succeeded("1"), Raised(ERROR, final=True), Undecodable(ERROR), Stopped(ERROR)]


def a_request(**fields: Any) -> NewJob:
    request: dict[str, Any] = {"id": "new", "task": "work", "queue": "default"}
    return NewJob(**{**request, "unique": UniqueClaim("k"), **fields})


def a_job(**fields: Any) -> Job:
    job: dict[str, Any] = {"id": "old", "task": "work", "queue": "default", "state": State.RUNNING, "attempt": 2}
    return Job(**{**job, "token": "t", **fields})


def kept(**fields: Any) -> str:
    return keep_last.keep(a_request(**fields), "k", 100.0)


def finished(outcome: Outcome, **fields: Any) -> Any:
    return lifecycle.finish(a_job(**fields), outcome, Retry(), 0.5)


def test_what_is_kept_comes_back_as_it_was_asked_for() -> None:
    new = a_request(args='{"n":"\\u0000"}', tags=("a",), meta="{}", reason="r", priority=3, timeout=1.0, pinned=True)
    found = keep_last.request_of(keep_last.keep(new, "k@7#", 100.0))
    assert found == replace(new, run_at=100.0, asked_at=100.0, unique=UniqueClaim("k@7#"))


def test_the_newest_content_goes_under_the_first_id() -> None:
    text = keep_last.keep(a_request(id="later", args='{"n":2}', delay=5.0), "k", 130.0, kept(args='{"n":1}'))
    found = keep_last.request_of(text)
    assert found is not None
    assert (found.id, found.args, found.asked_at, found.run_at, found.delay) == ("new", '{"n":2}', 100.0, 135.0, 0.0)
    assert keep_last.id_of(text) == "new"


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"id":1}', "[" * 100_000])
def test_a_place_that_somebody_has_damaged_holds_nothing(text: str) -> None:
    assert keep_last.request_of(text) is None
    assert keep_last.id_of(text) is None
    assert keep_last.job_of(text, "old") is None
    assert keep_last.request_of(keep_last.keep(a_request(), "k", 1.0, text)) is not None


def test_a_damaged_place_does_not_keep_a_run_from_its_end() -> None:
    change = finished(Snoozed(2.0))
    assert lifecycle.take_over(change, "damaged") == replace(change, takes="damaged")


def test_nothing_kept_changes_nothing() -> None:
    change = finished(Succeeded())
    assert lifecycle.take_over(change, None) is change
    assert keep_last.id_of(None) is None


@pytest.mark.parametrize("outcome", ENDING)
def test_an_end_stays_what_it_is_and_the_kept_request_becomes_a_job(outcome: Outcome) -> None:
    change, text = finished(outcome), kept()
    taken = lifecycle.take_over(change, text)
    assert taken == replace(change, takes=text, follow_ups=(keep_last.request_of(text),))


@pytest.mark.parametrize("outcome", GOING_ON)
def test_a_run_that_would_go_on_is_superseded(outcome: Outcome) -> None:
    change, text = finished(outcome), kept()
    assert change.to not in TERMINAL
    taken = lifecycle.take_over(change, text)
    assert (taken.to, taken.why, taken.token, taken.expect) == (State.CANCELLED, "cancelled", "t", change.expect)
    assert taken.error is not None
    assert (taken.error.kind, taken.error.attempt) == ("cancelled", 2)
    assert "superseded by job new" in taken.error.message
    assert (change.error is None) or change.error.message in taken.error.message
    assert (taken.takes, taken.follow_ups) == (text, (keep_last.request_of(text),))
    assert (taken.crashes, taken.delay, taken.attempt) == (change.crashes, None, None)


def test_a_superseded_throttle_still_cools_its_queue() -> None:
    change = finished(Throttled(5.0))
    assert lifecycle.take_over(change, kept()).cooling == change.cooling


def test_a_superseded_rescue_is_still_a_rescue() -> None:
    taken = lifecycle.take_over(lifecycle.rescue(a_job(), "pod-1"), kept())
    assert (taken.to, taken.if_lapsed, taken.foreign, taken.crashes) == (State.CANCELLED, True, True, 1)


def test_what_takes_over_comes_before_the_task_s_own_follow_ups() -> None:
    own = a_request(id="own")
    taken = lifecycle.take_over(finished(Succeeded(None, None, (own,))), kept())
    assert [new.id for new in taken.follow_ups] == ["new", "own"]


def test_every_change_of_a_run_either_ends_it_or_leaves_it_under_way() -> None:
    for outcome in (*ENDING, *GOING_ON, Throttled()):
        assert finished(outcome).why in ENDS_RUN
    assert finished(Waits("answer")).why not in ENDS_RUN
    asked = lifecycle.cancel(a_job())
    assert asked is not None
    assert asked.why not in ENDS_RUN


def test_a_kept_request_is_seen_as_waiting_behind_its_holder() -> None:
    text = kept(args='{"n":2}', delay=5.0, tags=("a",))
    job = keep_last.job_of(text, "old")
    assert job is not None
    assert (job.id, job.behind, job.state, job.kept) == ("new", "old", State.WAITING, text)
    assert (job.args, job.created_at, job.run_at, job.unique_key, job.tags) == ('{"n":2}', 100.0, 105.0, "k", ("a",))
    view = job_view(job)
    assert (view.behind, view.kept) == ("old", None)
    said = explain(Evidence(now=100.0, job=job))
    assert said.causes[0].code == "kept"
    assert "kept behind job old" in said.summary
    bare = keep_last.job_of('{"id":"new","task":"work","queue":"q"}', "old")
    assert bare is not None
    assert (bare.run_at, bare.unique_key) == (0.0, None)


def test_a_holder_shows_what_it_keeps() -> None:
    job = a_job(kept=kept())
    assert job_view(job).kept == "new"
    assert [cause.code for cause in explain(Evidence(now=100.0, job=job)).causes][-1] == "keeps"


def test_cancelling_a_kept_request_empties_the_place() -> None:
    job = keep_last.job_of(kept(), "old")
    assert job is not None
    change = lifecycle.cancel(job)
    assert change is not None
    assert (change.id, change.why, change.expect, change.takes, change.to) == ("old", "unkept", LIVE, job.kept, None)
    assert change.follow_ups == ()


def test_a_kept_request_is_neither_moved_nor_reprioritised() -> None:
    job = keep_last.job_of(kept(), "old")
    assert job is not None
    assert lifecycle.move(job, "other") is None
    assert lifecycle.set_priority(job, 5) is None
    assert lifecycle.reschedule(job) is None


def test_cancelling_a_holder_between_two_runs_lets_the_kept_one_take_over() -> None:
    change = lifecycle.cancel(a_job(state=State.WAITING, kept=kept()))
    assert change is not None
    assert (change.to, [new.id for new in change.follow_ups]) == (State.CANCELLED, ["new"])


@pytest.mark.parametrize(
    ("request_", "now", "first", "expected"),
    [
        (a_request(delay=5.0), 10.0, 0.0, 15.0),
        (a_request(run_at=3.0), 10.0, 0.0, 10.0),
        (a_request(run_at=30.0), 10.0, 0.0, 30.0),
        (a_request(delay=5.0, unique=None), 10.0, 0.0, 15.0),
        (a_request(delay=5.0, unique=UniqueClaim("k", cap=12.0)), 10.0, 8.0, 15.0),
        (a_request(delay=5.0, unique=UniqueClaim("k", cap=12.0)), 10.0, 0.0, 12.0),
        (a_request(delay=5.0, unique=UniqueClaim("k", cap=12.0)), 20.0, 0.0, 20.0),
    ],
)
def test_a_request_is_put_off_but_not_beyond_the_cap(
    request_: NewJob, now: float, first: float, expected: float
) -> None:
    assert due(request_, now, first) == expected


def test_a_debounce_keeps_the_last() -> None:
    rule = Unique.debounced("5s", cap="1m", args=("user",))
    assert (rule.on_conflict, rule.debounce, rule.cap, rule.args) == ("keep_last", 5.0, 60.0, ("user",))
    assert Unique(debounce="5s", on_conflict="replace").on_conflict == "replace"


def test_once_per_period_is_the_first_of_each_window() -> None:
    rule = Unique.once_per("1m", key="k")
    assert (rule.period, rule.include_succeeded, rule.on_conflict, rule.key) == (60.0, True, "skip", "k")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"debounce": 0}, "debounce must be longer than zero"),
        ({"debounce": "5s", "cap": "4s"}, "cap must not be shorter than the debounce"),
        ({"cap": "4s"}, "a cap limits a debounce"),
        ({"debounce": "5s", "period": "1m"}, "would cut a debounced burst in two"),
        ({"on_conflict": "keep_last", "period": "1m", "include_succeeded": True}, "drops what keep_last would keep"),
        ({"on_conflict": "merge"}, '"skip", "replace" or "keep_last"'),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Unique(**options)


def test_what_a_run_has_made_of_its_meta_is_stored_however_it_ends() -> None:
    job = Job(id="1", task="t", queue="q", state=State.RUNNING, token="a", attempt=1)
    change = replace(lifecycle.finish(job, Snoozed(5.0), Retry(), 0.5), meta='{"page":4}')
    kept = keep_last.keep(NewJob(id="2", task="t", queue="q"), "k", 1.0)
    assert lifecycle.take_over(change, kept).meta == '{"page":4}'
    assert lifecycle.obey_cancel(change).meta == '{"page":4}'
