"""One act upon many jobs: what becomes of each, and what the row says of all."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from treadle.core import operation
from treadle.core.errors import FilterError
from treadle.core.job import LIVE, TERMINAL, Job, State
from treadle.core.operation import ACTS, Chunk, Operation, after, decide, halt, line, new, resume, stop, which, written

NOW = 1_800_000_000.0


class Answered(Struct, frozen=True):
    accepted: bool
    error: str | None = None


def an_operation(act: str = "cancel", text: str = "queue:mail", **fields: Any) -> Operation:
    given: dict[str, Any] = {"move": {"queue": "bulk"}, "priority": {"priority": 5}}.get(act, {})
    return written(new("op", act, text, **{**given, **fields}), None, NOW)


def a_job(state: State = State.READY, created_at: float = NOW - 60) -> Job:
    token = "t" if state is State.RUNNING else None
    return Job(id="job", task="send", queue="mail", state=state, created_at=created_at, token=token)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("state", list(State))
def test_each_act_changes_what_it_fits_and_counts_the_rest(act: str, state: State) -> None:
    chunk = decide(an_operation(act), [a_job(state)], None)
    fits = state in operation.FITS[act]
    assert chunk.matched == 1
    if fits or act == "delete":
        assert (len(chunk.changes), chunk.too_late, chunk.refused) == (1, 0, 0)
        assert state in chunk.changes[0].expect
    else:
        assert (chunk.changes, chunk.too_late, chunk.refused) == ((), int(act == "cancel"), int(act != "cancel"))


def test_what_runs_is_asked_by_cancel_and_refused_by_move_and_priority() -> None:
    running = a_job(State.RUNNING)
    (asked,) = decide(an_operation("cancel"), [running], None).changes
    assert (asked.why, asked.token) == ("cancel_asked", "t")
    for act in ("move", "priority", "reschedule", "revive"):
        assert decide(an_operation(act), [running], None).refused == 1


def test_what_lives_is_cancelled_where_it_should_be_deleted() -> None:
    found = {state: operation.change(an_operation("delete"), a_job(state)) for state in State}
    assert {state for state, change in found.items() if change is not None and change.remove} == TERMINAL
    assert {state for state, change in found.items() if change is not None and not change.remove} == LIVE


def test_the_parameters_reach_the_change() -> None:
    revived = operation.change(an_operation("revive", delay=9.0, priority=3, queue="bulk"), a_job(State.FAILED))
    assert revived is not None
    assert (revived.delay, revived.priority, revived.queue) == (9.0, 3, "bulk")
    later = operation.change(an_operation("reschedule", run_at=NOW + 5), a_job())
    assert later is not None
    assert later.run_at == NOW + 5
    moved = operation.change(an_operation("move"), a_job())
    raised = operation.change(an_operation("priority"), a_job())
    assert moved is not None
    assert raised is not None
    assert (moved.queue, raised.priority) == ("bulk", 5)


def test_younger_jobs_are_not_touched() -> None:
    jobs = [a_job(created_at=NOW + 0.1), a_job(created_at=NOW), a_job()]
    chunk = decide(an_operation(), jobs, "next")
    assert (len(chunk.changes), chunk.matched, chunk.cursor) == (2, 2, "next")


def test_times_count_from_the_cut_off() -> None:
    assert str(which(an_operation(text="age:>1h queue:mail"))) == "created:<2027-01-15T07:00:00.000000Z queue:mail"


def test_the_counts_add_up() -> None:
    answers = [Answered(True), Answered(True), Answered(False), Answered(False, "a live job holds its unique key")]
    begun = replace(an_operation("revive"), matched=10, changed=7, too_late=1, refused=2)
    found = after(begun, Chunk((), "next", matched=6, too_late=0, refused=2), answers)
    assert (found.matched, found.changed, found.too_late, found.refused) == (16, 9, 2, 5)
    assert found.matched == found.changed + found.too_late + found.refused
    assert (found.cursor, found.state) == ("next", "running")
    assert after(begun, Chunk((), None), []).state == "finished"


def test_the_storage_writes_version_and_instants() -> None:
    begun = an_operation()
    assert (begun.version, begun.created_at, begun.cutoff, begun.updated_at) == (1, NOW, NOW, NOW)
    wish = stop(begun)
    assert wish is not None
    stopping = written(wish, begun, NOW + 1)
    assert (stopping.state, stopping.version, stopping.updated_at, stopping.cutoff) == ("stopping", 2, NOW + 1, NOW)
    assert stopping.finished_at is None
    stopped = written(halt(stopping), stopping, NOW + 2)
    assert (stopped.state, stopped.finished_at) == ("stopped", NOW + 2)
    assert stop(stopped) is None


def test_what_is_stopped_or_failed_can_go_on_and_what_is_finished_cannot() -> None:
    failed = halt(an_operation(), "no such key")
    assert (failed.state, failed.error) == ("failed", "no such key")
    again = resume(failed, attended=True)
    assert again is not None
    assert (again.state, again.error, again.attended) == ("running", None, True)
    assert resume(replace(failed, state="finished"), attended=False) is None


def test_the_audit_tells_who_stopped_and_who_resumed_it() -> None:
    begun = an_operation(by="ann")
    wish = stop(begun, "ben")
    assert wish is not None
    stopping = written(wish, begun, NOW)
    stopped = written(halt(stopping), stopping, NOW)
    wish = resume(stopped, attended=False, by="cyd")
    assert wish is not None
    again = written(wish, stopped, NOW)
    done = written(after(again, Chunk((), None), []), again, NOW)
    steps = [(begun, None), (stopping, begun), (stopped, stopping), (again, stopped), (done, again)]
    assert [told.by for step in steps if (told := line(*step)) is not None] == ["ann", "ben", "ben", "cyd", "ann"]


def test_the_audit_tells_of_the_beginning_and_of_the_end() -> None:
    begun = an_operation("move", by="ann", reason="too many")
    first = line(begun, None)
    assert first is not None
    assert (first.act, first.subject, first.by, first.reason) == ("jobs.move", "queue:mail", "ann", "too many")
    assert (first.detail, first.operation, first.at) == ("started; queue bulk", "op", NOW)
    assert line(replace(begun, version=2, matched=500), begun) is None
    over = line(replace(begun, version=3, state="finished", matched=7, changed=6, refused=1), begun)
    assert over is not None
    assert over.detail == "finished; queue bulk; matched 7, changed 6, too late 0, refused 1"
    assert over.id != first.id
    resumed = line(replace(begun, version=4), replace(begun, state="stopped"))
    assert resumed is not None
    assert resumed.detail.startswith("resumed")


def test_all_jobs_must_be_asked_for() -> None:
    assert new("op", "cancel", "", everything=True).filter == ""
    all_jobs = line(written(new("op", "cancel", "", everything=True), None, NOW), None)
    assert all_jobs is not None
    assert all_jobs.subject == "all jobs"


@pytest.mark.parametrize(
    ("act", "text", "fields", "said"),
    [
        ("cancel", "", {}, "needs a filter"),
        ("cancel", "queue:mail", {"everything": True}, "exclude each other"),
        ("revove", "queue:mail", {}, "did you mean 'revive'"),
        ("explode", "queue:mail", {}, "one of revive, cancel"),
        ("move", "queue:mail", {}, "move needs the queue"),
        ("priority", "queue:mail", {}, "needs the number"),
        ("cancel", "queue:mail", {"queue": "bulk"}, "takes no queue"),
        ("cancel", "queue:mail", {"priority": 1}, "takes no priority"),
        ("cancel", "queue:mail", {"delay": 1.0}, "takes no time"),
        ("delete", "queue:mail", {"run_at": 1.0}, "takes no time"),
        ("move", "queue:mail", {"queue": "not a name"}, "queue"),
        ("priority", "queue:mail", {"priority": 1_000}, "priority"),
        ("cancel", "queue:mail", {"reason": "x" * 2_000}, "reason"),
    ],
)
def test_what_makes_no_sense_is_refused(act: str, text: str, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        new("op", act, text, **fields)


def test_a_bad_filter_is_told_with_its_place() -> None:
    with pytest.raises(FilterError) as caught:
        new("op", "cancel", "quue:mail")
    assert caught.value.column == 1
