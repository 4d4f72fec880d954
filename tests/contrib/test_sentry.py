"""What Sentry is told, as its own SDK would send it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from treadle import App, Fail, Retry, Snooze
from treadle.config import Timing
from treadle.contrib.sentry import instrument

pytestmark = pytest.mark.anyio


class Kept(Transport):
    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.items: list[tuple[str, dict[str, Any]]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [(str(item.type), item.payload.json or {}) for item in envelope.items]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for found, each in self.items if found == kind]


@pytest.fixture
def sent() -> Iterator[Kept]:
    kept = Kept()
    # Its integrations patch logging and frameworks, for good: the other tests of this process would see it.
    plain: dict[str, Any] = {"default_integrations": False, "auto_enabling_integrations": False}
    sentry_sdk.init(dsn="http://key@localhost/1", transport=kept, traces_sample_rate=1.0, **plain)
    yield kept
    sentry_sdk.get_client().close()
    sentry_sdk.init(**plain)


async def test_an_error_names_its_job_and_never_its_arguments(sent: Kept) -> None:
    app = App("memory://")
    instrument(app)
    instrument(app)  # changes nothing

    @app.task(name="work", queue="mail", retry=Retry(max_attempts=2, base=0.01))
    async def work(card: str) -> None:
        raise ValueError("declined")

    async with app, app.worker():
        with sentry_sdk.start_transaction(op="http.server", name="request") as request:
            handle = await work.enqueue("4111-1111")
        await app.client.wait_for_end(handle.id, 10)
    events = sent.of("event")
    assert [event["tags"]["treadle.attempt"] for event in events] == [1, 2]
    for event in events:
        assert event["tags"]["treadle.job"] == handle.id
        assert event["tags"]["treadle.task"] == "work"
        assert event["exception"]["values"][-1]["value"] == "declined"
    runs = [each for each in sent.of("transaction") if each["contexts"]["trace"]["op"] == "queue.process"]
    assert len(runs) == 2
    assert {run["contexts"]["trace"]["trace_id"] for run in runs} == {request.trace_id}
    assert {run["contexts"]["trace"]["data"]["messaging.destination.name"] for run in runs} == {"mail"}
    published = [s for each in sent.of("transaction") for s in each["spans"] if s["op"] == "queue.publish"]
    assert [span["data"]["messaging.message.id"] for span in published] == [handle.id]


async def test_signals_are_no_errors_but_fail_is(sent: Kept) -> None:
    app = App("memory://")
    instrument(app)
    once = iter([True])

    @app.task(name="work")
    async def work() -> None:
        raise Snooze("1s") if next(once, False) else Fail("gone")

    async with app, app.worker():
        await app.client.wait_for_end((await work.enqueue()).id, 10)
    assert [event["exception"]["values"][-1]["value"] for event in sent.of("event")] == ["gone"]


async def test_with_last_attempt_only_what_is_retried_is_not_told(sent: Kept) -> None:
    app = App("memory://")
    instrument(app, last_attempt_only=True)

    @app.task(name="work", retry=Retry(max_attempts=3, base=0.01))
    async def work() -> None:
        raise ValueError("no")

    async with app, app.worker():
        await app.client.wait_for_end((await work.enqueue()).id, 10)
    assert [event["tags"]["treadle.attempt"] for event in sent.of("event")] == [3]


async def test_a_schedule_checks_in(sent: Kept) -> None:
    app = App("memory://")
    instrument(app)

    @app.cron("0 9 * * *", name="morning")
    @app.task(name="report")
    async def report() -> None: ...

    # Schedules are written by whoever leads.
    async with app, app.worker(timing=Timing(leader_every=0.05, leader_ttl=5.0)):
        for _ in range(2000):
            if "morning" in {each.name for each in await app.schedules.list()}:
                break
            await asyncio.sleep(0.01)
        handle = await app.schedules.fire("morning")
        await handle.result("10s")
    assert [each["status"] for each in sent.of("check_in")] == ["in_progress", "ok"]
    assert {each["monitor_slug"] for each in sent.of("check_in")} == {"morning"}
