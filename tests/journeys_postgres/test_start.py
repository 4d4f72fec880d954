"""Workers that start while the server is away or is just coming up."""

from __future__ import annotations

import signal

from tests.journeys.stage import Worker

from .stage import PostgresStage


def _waits(stage: PostgresStage, worker: Worker) -> None:
    stage.wait(lambda: worker.said("cannot open the storage yet"), "the worker waits for the server")
    assert worker.lives


def test_a_worker_that_starts_before_its_server_waits_for_it(stage: PostgresStage) -> None:
    """C1 with J1, R22. As after a reboot of both; found by a soak, in which a worker that was restarted during a
    restart of its server gave up at the first refused connection."""
    ids = stage.act(count=3)
    stage.server.stop("fast")
    worker = stage.start(ready=False)
    _waits(stage, worker)
    stage.server.start()
    stage.wait(worker.is_serving, "it serves as soon as the server does")
    stage.drain(*ids)


def test_a_worker_that_waits_for_its_server_obeys_a_signal(stage: PostgresStage) -> None:
    stage.server.stop("fast")
    try:
        worker = stage.start(ready=False)
        _waits(stage, worker)
        worker.send(signal.SIGTERM)
        assert worker.exit_code(within=20) == 0
    finally:
        stage.server.start()


def test_a_worker_whose_user_does_not_exist_is_refused_at_once(stage: PostgresStage) -> None:
    """That will not pass by itself."""
    worker = stage.start(url=stage.url.replace("postgres@", "nobody_here@"), ready=False)
    assert worker.exit_code(within=20) == 5
    assert not worker.said("yet"), worker.log
