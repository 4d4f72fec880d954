"""Several processes on one file: pods beside pods, old beside new, and users' own transactions."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter

from .journey_app import act, newer
from .stage import Stage


def test_two_pods_share_two_thousand_jobs_and_each_runs_once(stage: Stage) -> None:
    """E7."""
    pods = [stage.start(queues="default:8"), stage.start(queues="default:8")]
    for _ in range(4):
        stage.act(count=500)
    stage.drain()
    effects = stage.effects()
    assert len(effects) == len({each.id for each in effects}) == 2000
    assert len(stage.claims()) == 2000
    parts = Counter(each.pid for each in effects)
    assert min(parts[pod.pid] for pod in pods) >= 200, f"one pod had nearly all: {parts}"


def test_in_a_rolling_deploy_old_pods_leave_new_tasks_alone(stage: Stage) -> None:
    """J6, G13, R57. A task that a pod does not know is not claimed, and no attempt is burnt on it."""
    old = stage.start(app="journey_app:app")
    unknown = stage.enqueue(*(newer.bind() for _ in range(10)))
    known = stage.act(count=10)
    stage.drain(*known)
    assert {(stage.job(id)["state"], stage.job(id)["attempt"]) for id in unknown} == {("ready", 0)}
    new = stage.start(app="journey_app:newer_app")
    stage.drain()
    assert {each.pid for each in stage.effects("effect", *unknown)} == {new.pid}
    assert {stage.job(id)["attempt"] for id in unknown} == {1}
    assert old.lives


def test_a_cancel_from_another_process_is_heard_at_once(stage: Stage) -> None:
    """Semantics 9: by the doorbell, long before the next beat (which is half a minute away here)."""
    (id,) = stage.act("gate", gate="never")
    stage.start(lease=90.0, beat=30.0)
    stage.wait(stage.began(id), "it runs")
    assert stage.app.client.cancel_sync(id) == "asked"
    took = stage.drain()
    assert stage.state(id) == "cancelled"
    assert took < 5.0, f"the doorbell took {took:.1f} s"


def test_an_enqueue_in_a_users_transaction_is_there_if_and_only_if_it_commits(stage: Stage) -> None:
    """P2. Nobody rings for a user's own commit, and this pod does not poll for a minute: it sees that the file has
    changed."""
    stage.start(poll=60.0)
    with contextlib.closing(sqlite3.connect(stage.database, isolation_level=None)) as db:
        db.execute("begin immediate")
        gone = stage.app.enqueue_sync(act.using(within=db).bind())
        db.execute("rollback")
        db.execute("begin immediate")
        kept = stage.app.enqueue_sync(act.using(within=db).bind())
        assert kept.id not in stage.jobs()
        db.execute("commit")
    stage.known.add(kept.id)
    took = stage.drain()
    assert took < 5.0, f"the commit was seen after {took:.1f} s"
    assert gone.id not in stage.jobs()
