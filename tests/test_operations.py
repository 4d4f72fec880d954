"""`app.operations`, `app.audit` and the rest that operators of many jobs use, as a program uses it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from treadle import App, Conflict, FilterError, OperationNotFound, ResultTimeout
from treadle.config import Timing
from treadle.core.job import NewJob
from treadle.operate.operations import PREVIEWED
from treadle.testing.conformance.builders import an_id

pytestmark = pytest.mark.anyio


async def with_jobs(app: App, count: int, queue: str = "mail") -> None:
    await app.open()
    await app.storage.insert([NewJob(id=an_id(), task=f"t{n % 2}", queue=queue) for n in range(count)])


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'jobs.db'}", timing=Timing(leader_every=0.1, start_jitter=0.0))


async def test_a_preview_counts_exactly_and_writes_nothing(app: App) -> None:
    await with_jobs(app, 25)
    preview = await app.operations.preview("move", "queue:mail", queue="bulk")
    assert (preview.matched, preview.changes, preview.capped) == (25, 25, False)
    assert (preview.states, preview.queues, preview.tasks) == ({"ready": 25}, {"mail": 25}, {"t0": 13, "t1": 12})
    assert len(preview.samples) == 10
    assert (await app.jobs.count("queue:mail"))["ready"] == 25
    assert list(await app.operations.list()) == []
    await app.close()


async def test_a_preview_of_very_many_is_exact_or_says_that_it_is_not(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PREVIEWED == 10_000
    monkeypatch.setattr("treadle.operate.operations.PREVIEWED", 20)
    monkeypatch.setattr("treadle.operate.operations._PAGE", 7)
    await with_jobs(app, 25)
    preview = await app.operations.preview("cancel", everything=True)
    assert (preview.matched, preview.changes, preview.capped) == (25, 25, False)
    assert preview.states == {"ready": 25} and sum(preview.queues.values()) == 20
    monkeypatch.setattr("treadle.operate.operations._COUNTED_FOR", 0.0)
    preview = await app.operations.preview("cancel", everything=True)
    assert (preview.matched, preview.changes, preview.capped) == (20, 20, True)
    await app.close()


async def test_a_worker_works_off_what_was_asked_for(app: App) -> None:
    @app.task(queue="other")
    async def idle() -> None: ...

    await with_jobs(app, 1_200)
    begun = await app.operations.start("cancel", "queue:mail", by="ann", reason="not needed")
    assert (begun.state, begun.by, begun.is_over) == ("running", "ann", False)
    with pytest.raises(ResultTimeout, match="it goes on"):
        await app.operations.wait(begun.id, timeout=0)
    async with app.worker():
        done = await app.operations.wait(begun.id, timeout=20)
    assert (done.state, done.matched, done.changed, done.too_late, done.refused) == ("finished", 1_200, 1_200, 0, 0)
    assert done.is_over
    assert (await app.jobs.count("queue:mail"))["cancelled"] == 1_200
    assert [line.detail.split(";")[0] for line in await app.audit.list()] == ["finished", "started"]


async def test_where_no_worker_is_it_can_be_run_here_and_progress_is_told(app: App) -> None:
    await with_jobs(app, 1_200)
    begun = await app.operations.start("cancel", "queue:mail", attended=True)
    told: list[int] = []
    done = await app.operations.run(begun.id, lambda view: told.append(view.matched))
    assert done.changed == 1_200
    assert told == [500, 1_000, 1_200]
    assert await app.operations.run(begun.id) == done  # it is over
    await app.close()


async def test_two_who_run_it_at_once_do_nothing_twice(app: App) -> None:
    await with_jobs(app, 2_000)
    begun = await app.operations.start("cancel", "queue:mail")
    first, second = await asyncio.gather(app.operations.run(begun.id), app.operations.run(begun.id))
    assert first == second
    assert (first.matched, first.changed) == (2_000, 2_000)
    await app.close()


async def test_stop_and_resume(app: App) -> None:
    await with_jobs(app, 3)
    begun = await app.operations.start("cancel", "queue:mail")
    assert (await app.operations.stop(begun.id)).state == "stopping"
    assert (await app.operations.run(begun.id)).state == "stopped"
    with pytest.raises(Conflict, match="is stopped: it is over"):
        await app.operations.stop(begun.id)
    assert (await app.operations.resume(begun.id)).state == "running"
    assert (await app.operations.run(begun.id)).changed == 3
    with pytest.raises(Conflict, match="nothing is left to do"):
        await app.operations.resume(begun.id)
    await app.close()


async def test_what_makes_no_sense_is_refused_before_anything_is_written(app: App) -> None:
    with pytest.raises(ValueError, match="needs a filter"):
        await app.operations.start("cancel")
    with pytest.raises(ValueError, match="needs the queue"):
        await app.operations.start("move", "queue:mail")
    with pytest.raises(ValueError, match="exclude each other"):
        await app.operations.start("reschedule", "queue:mail", delay=3, at=datetime.now(UTC))
    with pytest.raises(FilterError, match="column 1"):
        await app.operations.preview("cancel", "quue:mail")
    with pytest.raises(OperationNotFound, match="no operation nothing"):
        await app.operations.get("nothing")
    assert list(await app.operations.list()) == []
    await app.close()


async def test_one_job_is_moved_and_given_another_priority(app: App) -> None:
    await with_jobs(app, 1)
    (job,) = (await app.jobs.find()).jobs
    assert await app.jobs.move(job.id, "bulk") == "moved"
    assert await app.jobs.priority(job.id, 7) == "reprioritised"
    moved = await app.jobs.get(job.id)
    assert (moved.queue, moved.priority) == ("bulk", 7)
    await app.jobs.cancel(job.id)
    with pytest.raises(Conflict, match="only what has not started can be moved"):
        await app.jobs.move(job.id, "mail")
    with pytest.raises(ValueError, match="queue"):
        await app.jobs.move(job.id, "not a name")
    await app.close()


async def test_an_edit_of_a_queue_is_in_the_audit(app: App) -> None:
    await app.queues.pause("mail", by="ann", reason="down")
    await app.queues.resume("mail", by="ben")
    await app.queues.set("mail", max_workers=3, by="cyd")
    await app.audit.note("deploy", "shop 1.4", by="ci")
    lines = await app.audit.list()
    assert [line.act for line in lines] == ["deploy", "queues.set", "queues.resume", "queues.pause"]
    assert (lines[3].subject, lines[3].by, lines[3].reason) == ("mail", "ann", "down")
    assert [line.by for line in lines] == ["ci", "cyd", "ben", "ann"]
    assert [line.act for line in await app.audit.list(2, before=lines[1].id)] == ["queues.resume", "queues.pause"]
    await app.close()


def test_everything_has_a_twin_for_threads_without_a_loop(app: App) -> None:
    app.open_sync()
    first, second = (app.enqueue_sync("t", queue="mail") for _ in range(2))
    assert app.operations.preview_sync("cancel", "queue:mail").matched == 2
    begun = app.operations.start_sync("priority", "queue:mail", priority=3)
    assert app.operations.stop_sync(begun.id).state == "stopping"
    assert app.operations.resume_sync(begun.id).state == "running"
    assert app.operations.run_sync(begun.id).changed == 2
    assert app.operations.wait_sync(begun.id).state == app.operations.get_sync(begun.id).state == "finished"
    assert [each.id for each in app.operations.list_sync()] == [begun.id]
    assert app.jobs.move_sync(first.id, "bulk") == "moved"
    assert app.jobs.priority_sync(second.id, 4) == "reprioritised"
    assert app.jobs.failures_sync().groups == ()
    app.audit.note_sync("deploy", "shop")
    assert app.audit.list_sync()[0].act == "deploy"
    app.jobs.cancel_sync(first.id)
    app.queues.set_sync("bulk", keep_cancelled=0)
    assert app.queues.prune_sync("bulk") == 1
    app.jobs.cancel_sync(second.id)
    app.queues.set_sync("mail", keep_cancelled=0)
    none = {"succeeded": 0, "cancelled": 0, "failed": 0}
    assert app.queues.prune_all_sync() == {"bulk": none, "mail": {**none, "cancelled": 1}}
    app.close_sync()
