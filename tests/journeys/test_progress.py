"""A long job goes on where it was: after a kill, and after a deploy."""

from __future__ import annotations

import json
import signal

from .journey_app import long
from .stage import Stage

ITEMS = 120


def items_done(stage: Stage) -> list[int]:
    lines = map(json.loads, stage.effects_file.read_text().splitlines())
    return [int(line["what"].split()[1]) for line in lines if line["what"].startswith("item ")]


def progress(stage: Stage, id: str) -> float | None:
    found = stage.ask("select entry from treadle_job_progress where job_id = ?", id)
    return json.loads(found[0]["entry"])["done"] if found else None


def test_a_job_that_is_killed_half_way_goes_on_from_its_checkpoint(stage: Stage) -> None:
    """A1. Nothing is left out, and no more than what came after the last checkpoint comes again."""
    (id,) = stage.enqueue(long.bind(ITEMS, 0.1))
    worker = stage.start()
    stage.wait(lambda: len(items_done(stage)) >= ITEMS // 2, "half of it is done")
    worker.kill()
    before = len(items_done(stage))
    assert (progress(stage, id) or 0) > 0, "what the lost run said is still shown"
    stage.start()
    stage.drain(id)
    done = items_done(stage)
    assert sorted(set(done)) == list(range(ITEMS))
    again = len(done) - ITEMS
    assert 0 <= again <= 30, f"{again} items again after {before}"
    assert stage.job(id)["attempt"] == 2
    stage.wait(lambda: progress(stage, id) is None, "what is over is removed")


def test_a_job_that_is_interrupted_by_a_deploy_goes_on_uncharged_with_the_next_item(stage: Stage) -> None:
    """J1. Nothing comes again, and nobody waits for the long job: it is given back at the end of its item."""
    (id,) = stage.enqueue(long.bind(ITEMS, 60.0))
    for part in (1, 2):
        worker = stage.start(grace=20.0)
        stage.wait(lambda: len(items_done(stage)) >= part * ITEMS // 4, "a part of it is done")  # noqa: B023
        worker.send(signal.SIGTERM)
        assert worker.exit_code(within=10.0) == 0, worker.log
        assert (stage.state(id), stage.job(id)["attempt"], stage.job(id)["crashes"]) == ("ready", 0, 0)
    stage.start()
    stage.drain(id)
    assert items_done(stage) == list(range(ITEMS))
    assert (stage.state(id), stage.job(id)["attempt"]) == ("succeeded", 1)
