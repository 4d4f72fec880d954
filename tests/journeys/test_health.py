"""Health, metrics and history of real worker processes: asked over HTTP, blocked, drained and killed."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from .stage import Stage, Worker


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def port_of(worker: Worker) -> int:
    found = re.search(r"health and metrics on http://127\.0\.0\.1:(\d+)", worker.log)
    assert found is not None, worker.log
    return int(found[1])


def counted(port: int) -> float:
    return sum(
        sample.value
        for family in text_string_to_metric_families(ask(port, "/metrics")[1])
        for sample in family.samples
        if sample.name == "treadle_finished_total" and sample.labels["outcome"] == "succeeded"
    )


def rolled_up(stage: Stage) -> int:
    rows = [json.loads(row["entry"]) for row in stage.ask("select entry from treadle_rollup where resolution = 60")]
    return sum(row["outcomes"].get("succeeded", 0) for row in rows)


def test_a_worker_answers_also_while_its_loop_is_blocked_and_while_it_drains(stage: Stage) -> None:
    worker = stage.start("--health", "0", loop_lag=5.0, grace=20.0)
    port = port_of(worker)
    stage.act(count=20)
    stage.wait(lambda: counted(port) == 20, "the jobs are counted")
    assert ask(port, "/healthz") == (200, "ok\n")
    stage.wait(lambda: ask(port, "/readyz")[0] == 200, "it is ready")

    (blocking,) = stage.act("block for ever", gate="loop")
    stage.wait(stage.began(blocking), "the loop is blocked")
    for path in ("/healthz", "/readyz", "/metrics"):
        begun = time.monotonic()
        assert ask(port, path)[0] == 200, path
        assert time.monotonic() - begun < 5
    stage.open_gate("loop")

    (gated,) = stage.act("gate", gate="go")
    stage.wait(stage.began(gated), "a job runs")
    worker.send(signal.SIGTERM)
    stage.wait(lambda: ask(port, "/readyz")[0] == 503, "it says that it is not ready")
    assert json.loads(ask(port, "/readyz")[1])["reasons"] == ["it is shutting down"]
    assert ask(port, "/healthz")[0] == 200
    stage.open_gate("go")
    assert worker.exit_code() == 0
    assert rolled_up(stage) == 22, "what was counted is written before it leaves"


def test_a_worker_that_cannot_listen_says_so_and_does_not_start(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        worker = stage.start("--health", f"127.0.0.1:{port}", ready=False)
        assert worker.exit_code() == 78, worker.log
        assert worker.said(f"health: cannot listen on 127.0.0.1:{port}")


def test_each_of_several_processes_has_a_port_of_its_own(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free, socket.socket() as next_to_it:
        port = free.getsockname()[1]
        next_to_it.bind(("127.0.0.1", port + 1))
    worker = stage.start("--processes", "2", "--health", str(port), ready=False)

    def both_answer() -> bool:
        try:
            return all(ask(each, "/readyz")[0] == 200 for each in (port, port + 1))
        except OSError:
            return False

    stage.wait(both_answer, "both are ready")
    pods = {json.loads(ask(each, "/readyz")[1])["pod"] for each in (port, port + 1)}
    assert len(pods) == 2
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0


def test_a_killed_worker_loses_at_most_two_seconds_of_its_charts(stage: Stage) -> None:
    worker = stage.start()
    ids = stage.act(count=50)
    stage.wait(lambda: all(stage.state(id) == "succeeded" for id in ids), "the jobs have ended")
    ended = time.monotonic()
    stage.wait(lambda: rolled_up(stage) == 50, "and are in the history", within=10)
    assert time.monotonic() - ended < 4, "within two seconds, and some for a busy machine"
    late = stage.act(count=5)
    stage.wait(lambda: all(stage.state(id) == "succeeded" for id in late), "more have ended")
    worker.kill()
    assert 50 <= rolled_up(stage) <= 55
    assert {stage.state(id) for id in (*ids, *late)} == {"succeeded"}, "no state is derived from it"
