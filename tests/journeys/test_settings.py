"""An operator's edits, from a process of their own: heard within two seconds, and never at the cost of a run."""

from __future__ import annotations

import time

from .stage import Stage

SOON = 2.0  # what is promised; the next beat is twenty seconds away


def test_scale_and_pause_are_heard_by_every_pod_long_before_its_next_beat(stage: Stage) -> None:
    queues = stage.app.queues
    queues.scale_sync("default", 0)
    for _ in range(2):
        stage.start(queues="default:8", lease=60.0, beat=20.0)
    stage.wait(lambda: len(stage.serving()) == 2, "both serve")
    ids = stage.act("gate", count=10, gate="go")
    time.sleep(0.5)
    assert stage.effects("began") == []

    queues.scale_sync("default", 4)
    took = stage.wait(lambda: len(stage.effects("began")) == 4, "four run")
    assert took < SOON, f"it took {took:.1f} s"
    time.sleep(0.3)
    assert len(stage.effects("began")) == 4
    assert len({each.pid for each in stage.effects("began")}) == 2

    queues.scale_sync("default", 1)  # cancels nothing
    queues.pause_sync("default", reason="provider down", by="ann")
    time.sleep(0.5)
    assert sum(stage.state(id) == "running" for id in ids) == 4
    stage.open_gate("go.1")
    stage.wait(lambda: sum(stage.state(id) == "succeeded" for id in ids) == 4, "the four end")
    time.sleep(0.3)
    assert len(stage.effects("began")) == 4

    queues.scale_sync("default", None)
    queues.resume_sync("default")
    stage.drain()
    assert {stage.job(id)["attempt"] for id in ids} == {1}
