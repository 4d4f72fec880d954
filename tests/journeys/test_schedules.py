"""kill -9 of whoever leads, while schedules fire every second: no time is fired twice, and none is lost."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import pytest

from treadle.core.schedule_view import ScheduleView

from .stage import Stage, Worker

POLICIES = {"coalesced": "coalesce", "caught": "catch_up"}


def begin(stage: Stage) -> None:
    for name, misfire in POLICIES.items():
        stage.app.schedules.add_sync(name, "every 1s", "act", misfire=misfire)  # type: ignore[arg-type]


def fired_by(stage: Stage) -> Mapping[str, list[float]]:
    """The fire times of the jobs there are, by schedule, oldest first."""
    found: dict[str, list[float]] = {name: [] for name in POLICIES}
    for job in stage.jobs().values():
        meta = json.loads(job["meta"])
        found[meta["treadle:schedule"]].append(datetime.fromisoformat(meta["treadle:fire_at"]).timestamp())
    return {name: sorted(times) for name, times in found.items()}


def leading(stage: Stage) -> Worker | None:
    leaders = {pod.pid for pod in stage.app.pods.list_sync() if pod.leader and pod.live}
    return next((worker for worker in stage.workers if worker.lives and worker.pid in leaders), None)


def leader(stage: Stage) -> Worker:
    stage.wait(lambda: leading(stage) is not None, "somebody leads")
    found = leading(stage)
    assert found is not None
    return found


def another_fire(stage: Stage) -> None:
    count = len(stage.jobs())
    stage.wait(lambda: len(stage.jobs()) >= count + 2, "schedules go on firing")


def settle(stage: Stage) -> dict[str, ScheduleView]:
    """Stop firing, let every job end, and see that each fire time made one job."""
    for name in POLICIES:
        stage.app.schedules.pause_sync(name)
    stage.perhaps.update(stage.jobs())
    stage.drain(*stage.perhaps)
    found = fired_by(stage)
    for name, times in found.items():
        assert max(Counter(times).values()) == 1, f"{name} fired a time twice: {times}"
        records = [each for each in stage.app.schedules.fires_sync(name, 1000) if each.outcome == "fired"]
        assert sorted(each.fire_at.timestamp() for each in records) == pytest.approx(times, abs=0.001)
        assert {each.job for each in records} <= stage.jobs().keys()
    shown = {name: stage.app.schedules.get_sync(name) for name in POLICIES}
    for name, times in found.items():
        steps = round(times[-1] - shown[name].created_at.timestamp())
        assert (shown[name].fired, shown[name].fired + shown[name].missed) == (len(times), steps), name
    assert shown["caught"].missed == 0
    return shown


@pytest.mark.slow
def test_a_leader_that_is_killed_again_and_again_fires_nothing_twice_and_loses_nothing(stage: Stage) -> None:
    """P9. After each kill no pod leads for a while, and at last there is none: `coalesce` makes one job of the times
    that came meanwhile, `catch_up` one for each."""
    begin(stage)
    stage.start_many()
    for _ in range(4):
        another_fire(stage)
        leader(stage).kill()
        stage.start(ready=False)
        time.sleep(1.2)  # longer than the schedules' step: a slow next leader has something to make good
    another_fire(stage)
    for worker in stage.workers:  # a quick neighbour misses nothing: so once there is none
        if worker.lives:
            worker.kill()
    time.sleep(2.5)
    stage.start_many()
    another_fire(stage)
    shown = settle(stage)
    assert shown["coalesced"].missed > 0


@pytest.mark.parametrize("step", ["group.before_commit", "group.after_commit"])
def test_a_leader_killed_around_the_commit_of_a_fire_leaves_all_of_it_or_nothing(stage: Stage, step: str) -> None:
    """P9. The job, the record and the cursor are one commit: the next leader fires what was not, and only that."""
    begin(stage)
    victim = stage.start(point=("fire", step, "SIGKILL"), ready=False)
    victim.was_killed()
    assert bool(stage.jobs()) == (step == "group.after_commit")
    stage.start()
    another_fire(stage)
    settle(stage)
