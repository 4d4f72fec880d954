"""Somebody begins a transaction, and goes home."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from .stage import PostgresStage

JOBS = 20_000


def test_a_held_snapshot_does_not_make_the_drain_collapse(stage_on: Callable[..., PostgresStage]) -> None:
    """C19. No row that a claim or a finish leaves behind can be cleaned up meanwhile; the claims must not walk over
    them again and again. The last quarter is as fast as the first, or nearly so."""
    stage = stage_on(audit=False)
    stage.act(count=2_000)
    with contextlib.closing(stage.connect()) as idler:
        idler.execute("begin isolation level repeatable read")
        idler.execute("select txid_current()")
        idler.execute("select count(*) from pg_class")
        for start in range(2_000, JOBS, 3_000):
            stage.act(count=min(3_000, JOBS - start))
        stage.start(queues="default:500")
        stage.drain(within=90)
        (row,) = stage.ask(
            "select array_agg(date_part('epoch', at) order by n) as at from ("
            "  select finished_at as at, row_number() over (order by finished_at) as n from job_history"
            ") as x where n %% 1000 = 0 or n = 1"
        )
        idler.execute("rollback")
    at = row["at"]
    quarter = (len(at) - 1) // 4
    first, last = at[quarter] - at[0], at[-1] - at[-1 - quarter]
    stage.figures["jobs a second under a held snapshot"] = JOBS / (at[-1] - at[0])
    stage.figures["last quarter's rate, of the first's"] = first / last
    assert first / last > 0.25  # walking over what is dead would make it a tenth, and less
