"""A job that waits for somebody outside, while workers come and go."""

from __future__ import annotations

import json

import pytest

from treadle import AnswerStale

from .journey_app import ask
from .stage import Stage


def tokens(stage: Stage, id: str) -> list[str]:
    """What the attempts of a job have given away, in order."""
    lines = [json.loads(line) for line in stage.effects_file.read_bytes().splitlines()]
    told = [line["what"] for line in lines if line["id"] == id]
    return [what.removeprefix("token ") for what in told if what.startswith("token ")]


def asked(stage: Stage, id: str, attempts: int = 1) -> str:
    stage.wait(lambda: len(tokens(stage, id)) >= attempts, "the job has asked")
    return tokens(stage, id)[attempts - 1]


def waits(stage: Stage, id: str) -> None:
    stage.wait(lambda: stage.state(id) == "waiting", "the job waits")


def ended(stage: Stage, id: str, *, attempts: int, crashes: int = 0) -> None:
    job = stage.job(id)
    assert (job["state"], job["attempt"], job["crashes"]) == ("succeeded", attempts, crashes), stage.report()


def test_a_worker_killed_while_its_job_waits_and_an_answer_while_no_worker_runs(stage: Stage) -> None:
    """What waits is nobody's: the death of the worker that asked costs it nothing, and the answer needs none."""
    (id,) = stage.enqueue(ask.bind())
    victim = stage.start()
    token = asked(stage, id)
    waits(stage, id)
    victim.kill()
    assert stage.app.answers.give_sync(token, "paid") == "won"
    assert stage.state(id) == "ready"
    stage.start()
    stage.drain()
    ended(stage, id, attempts=1)
    assert stage.job(id)["result"] == '"paid"'
    assert stage.app.answers.give_sync(token, "paid") == "same"


@pytest.mark.parametrize("step", ["group.before_commit", "group.after_commit"])
def test_a_worker_killed_around_the_commit_of_the_wait_waits_or_asks_again(stage: Stage, step: str) -> None:
    (id,) = stage.enqueue(ask.bind(gate="go"))
    victim = stage.start(point=("wait", step, "SIGKILL"))
    token = asked(stage, id)
    stage.open_gate("go")
    victim.was_killed()
    has_waited = step == "group.after_commit"
    assert stage.state(id) == ("waiting" if has_waited else "running")
    stage.start()
    if has_waited:
        assert stage.app.answers.give_sync(token, 1) == "won"
    else:
        second = asked(stage, id, 2)
        with pytest.raises(AnswerStale):
            stage.app.answers.give_sync(token, 1)
        assert stage.app.answers.give_sync(second, 1) == "won"
    stage.drain()
    ended(stage, id, attempts=1 if has_waited else 2, crashes=0 if has_waited else 1)


def test_an_answer_that_overtakes_the_wait_is_not_lost(stage: Stage) -> None:
    (id,) = stage.enqueue(ask.bind(gate="go"))
    stage.start()
    assert stage.app.answers.give_sync(asked(stage, id), "early") == "won"
    assert stage.state(id) == "running"
    stage.open_gate("go")
    stage.drain()
    ended(stage, id, attempts=1)
    assert stage.job(id)["result"] == '"early"'
    assert [move.became for move in stage.history(id)] == ["ready", "running", "ready", "running", "succeeded"]


def test_a_wait_in_vain_is_ended_by_whoever_is_there_and_asked_again(stage: Stage) -> None:
    """Its own worker is dead by then."""
    (id,) = stage.enqueue(ask.bind(0.3))
    victim = stage.start()
    first = asked(stage, id)
    waits(stage, id)
    victim.kill()
    stage.start()
    second = asked(stage, id, 2)
    with pytest.raises(AnswerStale):
        stage.app.answers.give_sync(first, 1)
    stage.app.answers.beat_sync(second)
    assert stage.app.answers.give_sync(second, 2) == "won"
    stage.drain()
    ended(stage, id, attempts=2)
    assert [error["kind"] for error in stage.errors(id)] == ["expired"]


def test_a_wait_that_nobody_ever_answers_fails(stage: Stage) -> None:
    (id,) = stage.enqueue(ask.bind(0.1))
    stage.start()
    stage.drain()
    assert (stage.state(id), stage.job(id)["attempt"]) == ("failed", 5)
    assert [error["kind"] for error in stage.errors(id)] == ["expired"] * 5
