"""Answers from outside, end to end: an app, a worker, and somebody who answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from treadle import (
    AnswerAgain,
    AnswerExpired,
    AnswerFailed,
    AnswerNotFound,
    AnswerStale,
    App,
    Conflict,
    Context,
    Handle,
    JobFailed,
    JobView,
    Retry,
    Wait,
)
from treadle.config import Timing
from treadle.context.answers import new_token
from treadle.core import answer as answering
from treadle.core.errors import ClaimLost, PayloadError
from treadle.storages.postgres import PostgresStorage

pytestmark = pytest.mark.anyio

QUICK = Timing(beat=0.2, scan=0.1, neighbours=0.1, poll=0.1, start_jitter=0.0, leader_every=0.05, leader_ttl=2.0)


class Shop:
    """An app whose task asks a provider, which the test plays."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.tokens: asyncio.Queue[str] = asyncio.Queue()
        self.seen: list[tuple[int, str | None]] = []
        self.timeout: Any = "1h"

        @app.task(retry=Retry.fixed(0, max_attempts=3, jitter=0))
        async def pay(ctx: Context, order: int) -> Any:
            self.seen.append((ctx.attempt, ctx.answer_kind))
            if ctx.has_answer:
                return await ctx.answer()
            token = await ctx.answer_token(self.timeout)
            self.tokens.put_nowait(token)
            raise Wait(token)

        @app.task(retry=Retry.fixed(0, max_attempts=3, jitter=0))
        async def pay_here(ctx: Context, order: int) -> Any:
            self.seen.append((ctx.attempt, ctx.answer_kind))
            token = await ctx.answer_token(self.timeout)
            self.tokens.put_nowait(token)
            return await ctx.answer(token)

        @app.task()
        def pay_in_a_thread(ctx: Context, order: int) -> Any:
            if ctx.has_answer:
                return ctx.answer_sync()
            token = ctx.answer_token_sync(timeout=timedelta(hours=1))
            loop.call_soon_threadsafe(self.tokens.put_nowait, token)
            if order == 0:
                raise Wait(token)
            return ctx.answer_sync(token)

        loop = asyncio.get_running_loop()
        self.pay, self.pay_here, self.pay_in_a_thread = pay, pay_here, pay_in_a_thread

    async def token(self) -> str:
        async with asyncio.timeout(10):
            return await self.tokens.get()

    async def wait_for(self, handle: Handle[Any], state: str) -> JobView:
        async with asyncio.timeout(10):
            while (job := await handle.status()).state != state:
                await asyncio.sleep(0.01)
            return job


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    async with app.worker({"default": 4}, timing=QUICK):
        yield


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    if request.param == "memory":
        app = App("memory://")
    elif request.param == "sqlite":
        app = App(f"sqlite:///{tmp_path}/jobs.db")
    else:
        storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), auto_migrate=True)
        app = App(storage=storage)
    async with app:
        yield Shop(app)


@pytest.fixture
async def plain() -> AsyncIterator[Shop]:
    async with App("memory://") as app:
        yield Shop(app)


async def test_a_job_waits_without_a_slot_and_runs_again_with_the_answer(shop: Shop) -> None:
    async with shop.app.worker({"default": 1}, timing=QUICK):
        handle = await shop.pay.enqueue(7)
        token = await shop.token()
        job = await shop.wait_for(handle, "waiting")
        assert job.waits is not None and job.waits.until is not None
        assert timedelta(minutes=58) < job.waits.until - datetime.now(UTC) < timedelta(minutes=62)
        assert job.waits.since == job.started_at
        assert job.run_at == job.waits.until
        other = await shop.pay.enqueue(8)  # the only slot is free
        await shop.app.answers.give(await shop.token(), "other")
        assert await other.result(10) == "other"
        assert await shop.app.answers.give(token, {"receipt": 1}) == "won"
        assert await handle.result(10) == {"receipt": 1}
        assert (await handle.status()).attempt == 1  # the charge of the attempt that waited was returned
        assert (await handle.status()).waits is None
        assert await shop.app.answers.give(token, {"receipt": 1}) == "same"
        with pytest.raises(Conflict, match="another answer"):
            await shop.app.answers.give(token, {"receipt": 2})
        with pytest.raises(Conflict):
            await shop.app.answers.fail(token, "no")
        with pytest.raises(AnswerStale):
            await shop.app.answers.beat(token)


async def test_an_answer_may_come_before_the_wait_and_while_no_worker_runs(shop: Shop) -> None:
    async with working(shop.app):
        handle = await shop.pay_here.enqueue(7)
        assert await shop.app.answers.give(await shop.token(), 1) == "won"
        assert await handle.result(10) == 1
        handle = await shop.pay.enqueue(8)
        token = await shop.token()
        await shop.wait_for(handle, "waiting")
    assert await shop.app.answers.give(token, 2) == "won"
    assert (await handle.status()).state == "ready"
    async with working(shop.app):
        assert await handle.result(10) == 2


async def test_an_error_raises_where_it_is_read_and_the_next_attempt_asks_anew(shop: Shop) -> None:
    async with working(shop.app):
        handle = await shop.pay.enqueue(7)
        first = await shop.token()
        await shop.app.answers.fail(first, "card declined")
        second = await shop.token()
        assert (await shop.wait_for(handle, "waiting")).error_count == 1
        with pytest.raises(Conflict):
            await shop.app.answers.give(first, 1)
        await shop.app.answers.give(second, 2)
        assert await handle.result(10) == 2
    assert shop.seen == [(1, None), (1, "error"), (2, None), (2, "result")]
    error = (await handle.status()).errors[0]
    assert (error.type, error.message) == ("AnswerFailed", "the answer is an error: card declined")


async def test_again_comes_back_later_and_asks_anew(shop: Shop) -> None:
    async with working(shop.app):
        handle = await shop.pay.enqueue(7)
        assert await shop.app.answers.again(await shop.token(), 0.2) == "won"
        await shop.app.answers.give(await shop.token(), 2)
        assert await handle.result(10) == 2
    assert shop.seen == [(1, None), (1, "again"), (1, "result")]
    assert (await handle.status()).error_count == 0


async def test_nobody_answers_in_time(shop: Shop) -> None:
    shop.timeout = 0.2
    async with working(shop.app):
        handle = await shop.pay.enqueue(7)
        tokens = [await shop.token() for _ in range(3)]
        with pytest.raises(JobFailed) as failed:
            await handle.result(20)
    assert failed.value.kind == "expired"
    job = await handle.status()
    assert (job.attempt, [error.kind for error in job.errors]) == (3, ["expired"] * 3)
    assert job.errors[0].message == "no answer came within 200ms"
    for token in tokens:
        with pytest.raises(AnswerStale, match="that attempt is over"):
            await shop.app.answers.give(token, 1)


async def test_a_wait_in_place_ends_in_time_with_a_reason_of_its_own(shop: Shop) -> None:
    shop.timeout = 0.2
    async with working(shop.app):
        handle = await shop.pay_here.enqueue(7)
        token = await shop.token()
        for _ in range(2):
            await asyncio.sleep(0.12)
            assert await shop.app.answers.beat(token) > datetime.now(UTC) - timedelta(seconds=1)
        with pytest.raises(JobFailed) as failed:
            await handle.result(20)
    assert failed.value.kind == "expired"
    assert shop.seen == [(1, None), (2, None), (3, None)]
    with pytest.raises(AnswerStale):
        await shop.app.answers.give(token, 1)


async def test_a_beat_keeps_the_wait_alive(shop: Shop) -> None:
    shop.timeout = 0.6
    async with working(shop.app):
        handle = await shop.pay.enqueue(7)
        token = await shop.token()
        for _ in range(4):
            await asyncio.sleep(0.3)
            until = await shop.app.answers.beat(token)
        job = await handle.status()
        assert job.state == "waiting" and job.waits is not None and job.waits.until is not None
        assert abs(job.waits.until - until) < timedelta(seconds=0.01)
        await shop.app.answers.give(token, 1)
        assert await handle.result(10) == 1
    assert len(shop.seen) == 2


async def test_a_plain_function_waits_in_its_thread_too(shop: Shop) -> None:
    async with working(shop.app):
        for order in (0, 1):
            handle = await shop.pay_in_a_thread.enqueue(order)
            await shop.app.answers.give(await shop.token(), order)
            assert await handle.result(10) == order


async def test_answers_are_given_from_plain_code_too(shop: Shop) -> None:
    async with working(shop.app):
        handle = await shop.pay.enqueue(7)
        token = await shop.token()
        await shop.wait_for(handle, "waiting")
        answers = shop.app.answers
        assert await asyncio.to_thread(answers.beat_sync, token) > datetime.now(UTC)
        assert await asyncio.to_thread(answers.give_sync, token, 3) == "won"
        assert await handle.result(10) == 3
        for give in (answers.fail_sync, answers.again_sync):
            with pytest.raises(Conflict):
                await asyncio.to_thread(give, token, "1s")


async def test_of_many_who_answer_exactly_one_is_told_that_it_won(shop: Shop) -> None:
    async with working(shop.app):
        handle = await shop.pay.enqueue(7)
        token = await shop.token()
        told = await asyncio.gather(*(shop.app.answers.give(token, n) for n in range(16)), return_exceptions=True)
        assert told.count("won") == 1
        assert sum(isinstance(each, Conflict) for each in told) == 15
        assert await handle.result(10) == told.index("won")


async def test_a_cancelled_job_takes_no_answer(shop: Shop) -> None:
    async with working(shop.app):
        handle = await shop.pay.enqueue(7)
        token = await shop.token()
        await shop.wait_for(handle, "waiting")
        assert await handle.cancel() == "cancelled"
        with pytest.raises(AnswerStale):
            await shop.app.answers.give(token, 1)
        await shop.app.jobs.revive(handle.id)
        await shop.app.answers.give(await shop.token(), 2)
        assert await handle.result(10) == 2


async def test_a_result_stays_with_the_job_through_failed_attempts(plain: Shop) -> None:
    """Whoever was paid must not be asked again because the attempt that heard of it failed."""
    seen: list[bool] = []

    @plain.app.task(retry=Retry.fixed(0, max_attempts=3, jitter=0))
    async def ship(ctx: Context) -> Any:
        seen.append(ctx.has_answer)
        if not ctx.has_answer:
            token = await ctx.answer_token()
            plain.tokens.put_nowait(token)
            raise Wait(token)
        if len(seen) < 4:
            raise ValueError("the printer is out of paper")
        return await ctx.answer()

    async with working(plain.app):
        handle = await ship.enqueue()
        await plain.app.answers.give(await plain.token(), "paid")
        assert await handle.result(10) == "paid"
    assert seen == [False, True, True, True]


async def test_wait_needs_a_token_of_its_own_run(plain: Shop, caplog: pytest.LogCaptureFixture) -> None:
    @plain.app.task(retry=Retry.fixed(0, max_attempts=2, jitter=0))
    async def lost(ctx: Context, token: str | None) -> None:
        raise Wait(token or plain.tokens.get_nowait())

    @plain.app.task(retry=Retry.none())
    async def without_context() -> None:
        raise Wait("made up")

    async with working(plain.app):
        await plain.pay.enqueue(1)
        other = await plain.token()
        plain.tokens.put_nowait(other)
        for call in (lost.bind("made up"), lost.bind(other), without_context.bind()):
            handle = await plain.app.enqueue(call)
            with pytest.raises(JobFailed, match=r"Wait needs a token that .* made in this run") as failed:
                await handle.result(10)
            assert failed.value.kind == "error"
    assert other not in caplog.text


async def test_a_token_of_an_earlier_attempt_is_no_token_of_this_run(plain: Shop) -> None:
    @plain.app.task(retry=Retry.fixed(0, max_attempts=2, jitter=0))
    async def keeps(ctx: Context) -> None:
        if ctx.attempt == 1:
            plain.tokens.put_nowait(await ctx.answer_token())
            raise ValueError("not yet")
        raise Wait(plain.tokens.get_nowait())

    async with working(plain.app):
        with pytest.raises(JobFailed, match="made in this run"):
            await (await keeps.enqueue()).result(10)


async def test_what_cannot_be_said_is_refused_before_anything_is_written(plain: Shop) -> None:
    answers = plain.app.answers
    with pytest.raises(AnswerNotFound, match="no such token"):
        await answers.give("made up", 1)
    with pytest.raises(AnswerNotFound):
        await answers.beat("\0")
    with pytest.raises(PayloadError, match="NaN"):
        await answers.give("made up", float("nan"))
    with pytest.raises(ValueError, match="is not a duration"):
        await answers.again("made up", "soon")


async def test_a_plain_call_has_nobody_to_ask() -> None:
    context = Context.without_job("pay")
    assert not context.has_answer
    assert context.answer_kind is None
    with pytest.raises(RuntimeError, match="called as a plain function"):
        await context.answer_token()
    with pytest.raises(RuntimeError, match="no answer has come"):
        await context.answer()
    with pytest.raises(ValueError, match="timeout must be longer than zero"):
        await context.answer_token(0)


async def test_a_run_that_has_lost_its_claim_can_ask_for_nothing(plain: Shop) -> None:
    with pytest.raises(ClaimLost, match="another run's by now"):
        await plain.app.client.open_answer("id", "no such job", "token", 60.0, None)


async def test_in_place_an_error_and_again_raise(plain: Shop) -> None:
    heard: list[Any] = []

    @plain.app.task()
    async def asks(ctx: Context) -> None:
        for expected in (AnswerFailed, AnswerAgain):
            token = await ctx.answer_token()
            plain.tokens.put_nowait(token)
            try:
                await ctx.answer(token)
            except expected as error:
                heard.append(error)
        token = await ctx.answer_token(0.05)
        with pytest.raises(AnswerExpired, match="within 50ms"):
            await ctx.answer(token)
        with pytest.raises(AnswerExpired):
            await ctx.answer(token)
        with pytest.raises(AnswerNotFound):
            await ctx.answer("made up")

    async with working(plain.app):
        handle = await asks.enqueue()
        await plain.app.answers.fail(await plain.token(), {"code": 402})
        await plain.app.answers.again(await plain.token(), "10m")
        await handle.result(10)
    assert heard[0].error == {"code": 402}
    assert str(heard[0]) == 'the answer is an error: {"code":402}'
    assert heard[1].delay == 600.0


async def test_in_place_again_snoozes_a_task_that_does_not_catch_it(plain: Shop) -> None:
    async with working(plain.app):
        handle = await plain.pay_here.enqueue(7)
        await plain.app.answers.again(await plain.token(), "10m")
        job = await plain.wait_for(handle, "scheduled")
    assert (job.snoozes, job.attempt, job.error_count) == (1, 0, 0)


async def test_a_wait_in_place_is_answered_at_once(plain: Shop) -> None:
    """By a wake, not by the next poll."""
    async with working(plain.app):
        handle = await plain.pay_here.enqueue(7)
        token = await plain.token()
        await asyncio.sleep(1.2)  # by now it polls once in half a second and more
        begun = asyncio.get_running_loop().time()
        await plain.app.answers.give(token, 1)
        await handle.result(10)
        assert asyncio.get_running_loop().time() - begun < 0.2


async def test_hooks_and_the_timeline_hear_of_it(plain: Shop) -> None:
    heard: list[tuple[str, str]] = []
    plain.app.on_waiting(lambda job: heard.append(("waiting", job.state)))
    plain.app.on_released(lambda job: heard.append(("released", job.state)))
    async with working(plain.app):
        handle = await plain.pay.enqueue(7)
        token = await plain.token()
        await plain.wait_for(handle, "waiting")
        explained = await handle.explain()
        assert explained.causes[0].code == "waiting"
        assert explained.summary.startswith("waiting: it waits for an outside answer until 20")
        await plain.app.answers.give(token, 1)
        await handle.result(10)
    assert heard == [("waiting", "waiting"), ("released", "ready")]
    lines = [line.what for line in await plain.app.history.timeline(handle.id)]
    assert [what for what in lines if what != "claimed"] == ["enqueued", "waiting", "answered", "succeeded"]


async def test_no_log_and_no_row_has_the_token(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with working(shop.app):
            handle = await shop.pay.enqueue(7)
            token = await shop.token()
            await shop.wait_for(handle, "waiting")
            _, row = await shop.app.storage.answer_of(answering.id_of(token))
            assert row is not None and token not in str(row)
            assert token not in str(await handle.status())
            await shop.app.answers.give(token, 1)
            await handle.result(10)
    assert token not in caplog.text


def test_no_token_is_taken_for_an_option_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer in 64 could not be given by `treadle answers give TOKEN`."""
    made = iter(["-G" + "a" * 41, "--" + "b" * 41, "c" * 43])
    monkeypatch.setattr("treadle.context.answers.secrets.token_urlsafe", lambda size: next(made))
    assert new_token() == "c" * 43
