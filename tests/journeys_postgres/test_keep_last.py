"""keep_last under kill -9 on PostgreSQL: what is kept behind a run is neither lost nor run twice."""

from __future__ import annotations

from tests.journeys.test_keep_last import ask, hold, keep

from .stage import PostgresStage


def test_a_request_that_is_kept_behind_a_killed_worker_s_run_takes_over(stage: PostgresStage) -> None:
    victim = stage.start()
    holder = hold(stage)
    kept = keep(stage)
    victim.kill()
    stage.start()
    stage.wait(lambda: kept in stage.jobs(), "the kept request is a job")
    stage.drain()
    assert (stage.job(holder)["state"], stage.job(holder)["crashes"]) == ("cancelled", 1)
    assert f"superseded by job {kept}" in stage.errors(holder)[-1]["message"]
    assert stage.job(kept)["state"] == "succeeded"
    assert (len(stage.claims(kept)), len(stage.effects("effect", kept))) == (1, 1)


def test_a_server_killed_while_a_request_is_kept_loses_nothing(stage: PostgresStage) -> None:
    stage.start()
    holder = hold(stage)
    kept = keep(stage)
    stage.kill_server()
    stage.server.start()
    newer = ask(stage, "return")  # behind the run, or after it
    stage.open_gate("held")
    stage.wait(lambda: {kept, newer.id} <= stage.jobs().keys(), "all that was kept is a job")
    stage.drain()
    assert stage.job(holder)["state"] in ("succeeded", "cancelled")
    assert {stage.job(id)["state"] for id in (kept, newer.id)} == {"succeeded"}
