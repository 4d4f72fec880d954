"""Operators and the leader, over several worker processes: shares, quiet, stop, stacks."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from .stage import HERE, Stage, Worker


def treadle(stage: Stage, *arguments: str) -> str:
    """What the command line says, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "treadle.cli", *arguments],
        cwd=HERE,
        env=stage.environ(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pod_of(stage: Stage, worker: Worker) -> str:
    (pod,) = stage.pods_of(worker.pid)
    return pod


def shown(stage: Stage, pod: str) -> dict[str, object]:
    return json.loads(treadle(stage, "pods", "show", pod, "--json"))  # type: ignore[no-any-return]


def test_an_operator_quiets_a_pod_looks_at_its_stacks_and_stops_it(stage: Stage) -> None:
    first, second = stage.start_many(grace=60.0)
    quiet, other = pod_of(stage, first), pod_of(stage, second)
    assert "asked to be quiet" in treadle(stage, "pods", "quiet", quiet[:6])
    stage.wait(lambda: first.said("asked to be quiet"), "it has heard")
    stage.act(count=40)
    stage.drain()
    assert {each.pod for each in stage.claims()} == {other}

    treadle(stage, "pods", "resume", quiet)
    stage.wait(lambda: first.said("serve again"), "it has heard")
    held = stage.act("gate", gate="go", count=8)  # all slots of both
    stage.wait(stage.began(*held), "both pods are busy")
    text = treadle(stage, "pods", "stacks", quiet)
    assert "(event loop)" in text
    assert "_at_gate" in text  # where its jobs wait

    treadle(stage, "pods", "stop", quiet)
    stage.wait(lambda: first.said("asked to stop"), "it has heard")
    assert first.lives  # its jobs have their grace
    stage.open_gate("go")
    assert first.exit_code() == 0, first.log
    stage.drain()
    assert [pod["state"] for pod in map(json.loads, treadle(stage, "pods", "list", "--json").splitlines())] == ["live"]
    assert {job["attempt"] for job in stage.jobs().values()} == {1}


def test_a_total_is_shared_over_processes_and_the_next_leader_goes_on_sharing(stage: Stage) -> None:
    stage.app.queues.set_sync("default", max_workers=7)
    workers = stage.start_many(3)
    pods = [pod_of(stage, worker) for worker in workers]
    shares = "select pod, share from treadle_share"

    def are(*expected: int) -> bool:
        return sorted(row["share"] for row in stage.ask(shares)) == sorted(expected)

    stage.wait(lambda: are(3, 2, 2), "the leader has shared")
    since = time.time()
    stage.wait(lambda: all(row["beat_at"] > since for row in stage.ask("select * from treadle_pod")), "all have heard")
    held = stage.act("gate", gate="go", count=20)
    stage.wait(lambda: len(stage.held_by(pods)) == 7, "as many run as may")
    (leader,) = [pod.id for pod in stage.app.pods.list_sync() if pod.leader]
    workers[pods.index(leader)].kill()
    stage.wait(lambda: are(4, 3), "another leads, and the dead pod's share has moved")
    stage.open_gate("go")
    stage.drain(*held)


def test_a_pod_that_may_not_lead_leaves_it_to_the_other(stage: Stage) -> None:
    first = stage.start("--no-lead")
    second = stage.start(disable="services")
    assert [shown(stage, pod_of(stage, each))["can_lead"] for each in (first, second)] == [False, False]
    third = stage.start()
    stage.wait(lambda: shown(stage, pod_of(stage, third))["leader"], "the third leads")
    assert not stage.app.pods.get_sync(pod_of(stage, first)).leader
