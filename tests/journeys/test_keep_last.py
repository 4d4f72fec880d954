"""keep_last under kill -9: what is kept behind a run is neither lost nor run twice, wherever its worker dies."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from treadle import Handle, Unique

from .journey_app import act
from .stage import Stage

LAST = Unique(key="rebuild", on_conflict="keep_last")


def ask(stage: Stage, what: str, **more: Any) -> Handle[str]:
    handle = act.using(unique=LAST).bind(what, **more)
    found = stage.app.enqueue_sync(handle)
    stage.known.add(found.id)
    return found


def hold(stage: Stage) -> str:
    """A run that goes on until its gate is opened."""
    holder = ask(stage, "gate", gate="held")
    stage.wait(stage.began(holder.id), "the holder runs")
    return holder.id


def keep(stage: Stage) -> str:
    """Three requests behind it; the last has the content that counts."""
    kept = [ask(stage, what) for what in ("raise", "fail", "return")]
    assert {(handle.outcome, handle.id) for handle in kept} == {("kept", kept[0].id)}
    return kept[0].id


def took_over(stage: Stage, kept: str) -> None:
    """It has run, once, as one job, with the newest content, and nobody keeps anything any more."""
    stage.wait(lambda: kept in stage.jobs(), "the kept request is a job")
    stage.drain()
    assert stage.state(kept) == "succeeded"
    assert len(stage.effects("effect", kept)) == 1
    assert [row["kept"] for row in stage.ask("select kept from treadle_job")] == [None, None]


def test_a_request_that_is_kept_behind_a_killed_worker_s_run_takes_over(stage: Stage) -> None:
    victim = stage.start()
    holder = hold(stage)
    kept = keep(stage)
    victim.kill()
    stage.start()
    took_over(stage, kept)
    job = stage.job(holder)
    assert (job["state"], job["crashes"]) == ("cancelled", 1)
    assert f"superseded by job {kept}" in stage.errors(holder)[-1]["message"]
    assert len(stage.claims(kept)) == 1
    assert not stage.effects("effect", holder), "the old request must not run on beside the new one"


@pytest.mark.parametrize("part", ["finish", "take_over"])
@pytest.mark.parametrize("step", ["group.before_begin", "group.begun", "group.before_commit", "group.after_commit"])
def test_a_worker_killed_as_it_ends_the_run_loses_nothing_of_what_is_kept(stage: Stage, part: str, step: str) -> None:
    """The plain finish is refused, and the one that takes over is written, wholly or not at all."""
    victim = stage.start(point=(part, step, "SIGKILL"), ready=False)
    holder = hold(stage)
    kept = keep(stage)
    stage.open_gate("held")
    victim.was_killed()
    is_written = (part, step) == ("take_over", "group.after_commit")
    assert stage.state(holder) == ("succeeded" if is_written else "running")
    assert (kept in stage.jobs()) is is_written
    stage.start()
    took_over(stage, kept)
    assert stage.state(holder) == ("succeeded" if is_written else "cancelled")
    assert len(stage.effects("effect", holder)) == 1
    born = next(move.n for move in stage.history(kept) if move.was is None)
    assert born > next(move.n for move in stage.history(holder) if move.is_end), "two live jobs with one key"


def test_a_worker_that_stops_in_order_hands_over_what_is_kept(stage: Stage) -> None:
    worker = stage.start()
    holder = hold(stage)
    kept = keep(stage)
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert stage.state(holder) == "cancelled"
    stage.start()
    took_over(stage, kept)


def test_killed_again_and_again_the_newest_request_is_the_one_that_runs(stage: Stage) -> None:
    worker = stage.start()
    first = hold(stage)
    chain = [first]
    for _ in range(3):
        kept = ask(stage, "gate", gate="held")
        assert kept.outcome == "kept"
        worker.kill()
        worker = stage.start()
        stage.wait(stage.began(kept.id), "the kept one runs")
        chain.append(kept.id)
    stage.open_gate("held")
    stage.drain()
    assert [stage.state(id) for id in chain] == ["cancelled"] * 3 + ["succeeded"]
    assert [len(stage.claims(id)) for id in chain] == [1] * 4
