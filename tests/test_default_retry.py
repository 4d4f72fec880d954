"""How often a task is tried that says nothing of it: as its registry says, else its app, else ten times."""

from __future__ import annotations

import pytest

from treadle import App, ConfigError, Context, Registry, Retry
from treadle.testing import Jobs

pytestmark = pytest.mark.anyio

library = Registry()
own = Registry(retry=Retry.fixed("2s", max_attempts=3, jitter=0))


@library.task(name="library.fail")
async def fail(ctx: Context) -> None:
    raise ValueError(f"of {ctx.max_attempts}")


@own.task(name="own.fail")
async def fail_here(ctx: Context) -> None:
    raise ValueError(f"of {ctx.max_attempts}")


def an_app(jobs: Jobs, retry: Retry | int | None) -> App:
    app = App("memory://", retry=retry)
    jobs.use(app)
    return app


async def test_an_apps_default_is_for_tasks_that_say_none(jobs: Jobs) -> None:
    """Job option before the queue's live setting, before the task's, before the app's."""
    app = an_app(jobs, Retry.fixed("7s", max_attempts=2, jitter=0))

    async def broken(ctx: Context) -> None:
        raise ValueError(f"of {ctx.max_attempts}")

    plain = app.task(name="plain")(broken)
    said = app.task(name="said", retry=4)(broken)
    await app.queues.set("live", max_attempts=3)
    handles = [
        await plain.enqueue(),
        await said.enqueue(),
        await plain.using(max_attempts=5).enqueue(),
        await plain.using(queue="live").enqueue(),
        await plain.using(queue="live", max_attempts=6).enqueue(),
    ]
    await jobs.drain()
    waits = [(view.run_at - view.errors[-1].ended_at).total_seconds() for view in [await h.status() for h in handles]]
    assert (waits[0], waits[2], waits[3]) == (7, 7, 7)
    assert 3.5 <= waits[1] <= 6.5
    await jobs.advance("1d", expect_failures=True)
    assert [(await handle.status()).attempt for handle in handles] == [2, 4, 5, 3, 6]


async def test_a_registry_that_says_none_takes_that_of_the_app_which_runs_it(jobs: Jobs) -> None:
    """The registry is a module's, and each app has a default of its own: none may leave a mark on the tasks."""
    for attempts, wait in ((2, "7s"), (4, "3s"), (None, None)):
        app = an_app(jobs, None if attempts is None or wait is None else Retry.fixed(wait, attempts, jitter=0))
        app.include(library)
        app.include(own)
        asked, mine = await app.enqueue(fail.bind()), await app.enqueue(fail_here.bind())
        await jobs.drain()
        view = await asked.status()
        assert view.error is not None
        assert view.error.message == f"of {attempts or 10}"
        if wait is not None:
            assert (view.run_at - view.errors[-1].ended_at).total_seconds() == float(wait[0])
        await jobs.advance("1d", expect_failures=True)
        assert (await asked.status()).attempt == (attempts or 10)
        assert (await mine.status()).attempt == 3


async def test_who_enqueues_by_name_without_the_code_leaves_it_to_the_worker(jobs: Jobs) -> None:
    app = an_app(jobs, 2)
    id = (await app.enqueue("elsewhere.work")).id
    assert jobs._lent[app]._rows[id].job.max_attempts is None
    app.task(name="elsewhere.work")(fail.function)
    await jobs.drain()
    assert jobs._lent[app]._rows[id].job.max_attempts == 2


@pytest.mark.parametrize("make", [App, Registry])
def test_a_default_that_is_none_is_refused(make: type) -> None:
    with pytest.raises(ConfigError, match="a Retry or a number of attempts, not str"):
        make(retry="often")
    with pytest.raises(ConfigError, match="attempts"):
        make(retry=0)


async def test_a_live_delay_of_zero_tries_again_at_once(jobs: Jobs) -> None:
    """A base below a second was refused, and with it the one delay that some tests and some far sides want."""
    app = an_app(jobs, None)

    @app.task(name="twice", retry=Retry(max_attempts=3, base="1h"))
    async def twice(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ValueError
        return ctx.attempt

    await app.queues.set("default", backoff_base=0)
    handle = await twice.enqueue()
    await jobs.drain()
    assert await handle.result(timeout=0) == 3
    assert (await app.queues.get("default")).backoff_base == 0
