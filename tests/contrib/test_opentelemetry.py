"""Spans of enqueues and runs, as an SDK really exports them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from treadle import App, JobFailed, Retry, Snooze
from treadle.contrib.opentelemetry import META, instrument

pytestmark = pytest.mark.anyio


class Traced:
    def __init__(self, **options: Any) -> None:
        self.app = App("memory://")
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader])
        for _ in range(2):  # the second call changes nothing
            instrument(self.app, tracer_provider=self.provider, meter_provider=meters, **options)

    def spans(self, kind: SpanKind) -> Sequence[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]


@pytest.fixture
async def traced() -> AsyncIterator[Traced]:
    traced = Traced()
    async with traced.app:
        yield traced


async def test_a_run_is_a_trace_of_its_own_linked_to_its_enqueue(traced: Traced) -> None:
    app = traced.app

    @app.task(name="work", queue="mail", retry=Retry(max_attempts=2, base=0.01))
    async def work() -> None:
        raise ValueError("secret words")

    async with app.worker():
        with traced.provider.get_tracer("web").start_as_current_span("request") as request:
            handle = await work.enqueue()
        with pytest.raises(JobFailed):
            await handle.result("10s")
    (sent,) = traced.spans(SpanKind.PRODUCER)
    runs = traced.spans(SpanKind.CONSUMER)
    assert sent.name == "send mail"
    assert sent.parent is not None and sent.context is not None
    assert sent.parent.span_id == request.get_span_context().span_id
    assert [run.name for run in runs] == ["process mail"] * 2
    for number, run in enumerate(runs, 1):
        assert run.parent is None
        assert [link.context.span_id for link in run.links] == [sent.context.span_id]
        assert run.attributes is not None
        assert run.attributes["messaging.message.id"] == handle.id
        assert run.attributes["treadle.attempt"] == number
        assert run.status.status_code is StatusCode.ERROR
    assert (await handle.status()).meta[META].keys() == {"traceparent"}
    data = traced.reader.get_metrics_data()
    assert data is not None
    names = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert names == {"messaging.process.duration"}


async def test_a_snooze_is_no_error_and_a_job_without_a_trace_has_no_link() -> None:
    traced = Traced()
    app, once = traced.app, iter([True])

    @app.task(name="work")
    async def work() -> None:
        if next(once, False):
            raise Snooze("1s")

    async with app, app.worker():
        handle = await app.enqueue("work", {}, meta={"other": 1})
        await handle.result("10s")
    assert [run.status.status_code for run in traced.spans(SpanKind.CONSUMER)] == [StatusCode.UNSET] * 2
    assert (await handle.status()).meta["other"] == 1


async def test_a_run_that_follows_soon_may_continue_the_callers_trace() -> None:
    traced = Traced(parent_within="1m")
    app = traced.app

    @app.task(name="work")
    async def work() -> None: ...

    async with app, app.worker():
        await (await work.enqueue()).result("10s")
    (sent,), (run,) = traced.spans(SpanKind.PRODUCER), traced.spans(SpanKind.CONSUMER)
    assert run.parent is not None and sent.context is not None and run.context is not None
    assert (run.parent.span_id, run.context.trace_id) == (sent.context.span_id, sent.context.trace_id)
    assert not run.links


@pytest.mark.parametrize("found", [None, 7, {"traceparent": 7}, {"traceparent": "garbage"}, ["x"]])
async def test_garbage_in_the_meta_harms_no_run(found: Any) -> None:
    traced = Traced()
    app = traced.app

    @app.task(name="work")
    async def work() -> int:
        return 1

    app.client.stamps.clear()
    from treadle.contrib import stamps

    app.client.stamps.append(lambda job: stamps.put(job, "x", {"y": "z"}))
    async with app, app.worker():
        import msgspec

        from treadle.core import payload
        from treadle.core.job import NewJob

        def stamp(job: NewJob) -> NewJob:
            return msgspec.structs.replace(job, meta=payload.encode({META: found}, what="meta"))

        app.client.stamps.append(stamp)
        assert await (await work.enqueue()).result("10s") == 1
    assert len(traced.spans(SpanKind.CONSUMER)) == 1


def test_headers_that_are_too_long_are_left_out() -> None:
    from treadle.contrib import stamps
    from treadle.core.job import NewJob

    job = NewJob(id="1", task="work", queue="mail")
    assert stamps.put(job, META, {"baggage": "x" * 9000}) is job


async def test_a_run_says_when_it_was_asked_for_why_and_what_went_wrong_before(traced: Traced) -> None:
    @traced.app.task(name="pay", queue="mail", retry=Retry(max_attempts=2, base=0.01))
    async def pay() -> None:
        raise ValueError("no")

    async with traced.app.worker(label="here"):
        handle = await pay.using(priority=7, reason="by hand").enqueue()
        with pytest.raises(JobFailed):
            await handle.result("60s")
        job = await handle.status()
    runs = [dict(span.attributes or {}) for span in traced.spans(SpanKind.CONSUMER)]
    assert [run["treadle.error_count"] for run in runs] == [0, 1]
    for run in runs:
        assert (run["treadle.priority"], run["treadle.reason"]) == (7, "by hand")
        assert run["treadle.slot"] == "mail-1-here"
        assert run["treadle.created_at"] == job.created_at.isoformat()
    assert datetime.fromisoformat(str(runs[0]["treadle.run_at"])) >= job.created_at
    assert runs[1]["treadle.run_at"] == job.run_at.isoformat()
