"""OpenTelemetry: a span for each enqueue and one for each run, linked across processes.

    from treadle.contrib.opentelemetry import instrument

    instrument(app)

The enqueue's W3C context travels in the job's meta. A run is a trace of its own with a link to the enqueue, because it
may be hours later and there may be many; with `parent_within="1m"` a first attempt that starts so soon continues the
caller's trace instead. Polling makes no spans. Needs `opentelemetry-api` only; without an SDK it costs next to nothing.

The conventions for messaging still move: their names are all in this file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakSet

from .. import __version__
from ..app import App
from ..context.context import Context
from ..core.duration import Duration, seconds
from ..core.errors import MissingExtra
from ..core.job import NewJob
from ..core.outcome import Fail, Signal
from ..middleware import Next
from . import stamps

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
except ImportError as missing:
    raise MissingExtra("treadle.contrib.opentelemetry", "opentelemetry-api", "otel") from missing

META: Final = "treadle:trace"
SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
TASK: Final = "treadle.task"
ATTEMPT: Final = "treadle.attempt"
POD: Final = "treadle.pod"
SLOT: Final = "treadle.slot"
PRIORITY: Final = "treadle.priority"
RUN_AT: Final = "treadle.run_at"
CREATED_AT: Final = "treadle.created_at"
REASON: Final = "treadle.reason"
ERROR_COUNT: Final = "treadle.error_count"
OUTCOME: Final = "treadle.outcome"
SEND_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"

_instrumented: WeakSet[App] = WeakSet()


def instrument(
    app: App,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    parent_within: Duration | None = None,
) -> None:
    """Trace this app's enqueues and runs. A second call changes nothing."""
    if app in _instrumented:
        return
    _instrumented.add(app)
    tracer = trace.get_tracer("treadle", __version__, tracer_provider)
    took = metrics.get_meter("treadle", __version__, meter_provider).create_histogram(
        PROCESS_DURATION, unit="s", description="How long runs of tasks take"
    )
    near = 0.0 if parent_within is None else seconds(parent_within, "parent_within")

    def stamp(job: NewJob) -> NewJob:
        with tracer.start_as_current_span(f"send {job.queue}", kind=SpanKind.PRODUCER, attributes=_sent(job)):
            headers: dict[str, str] = {}
            propagate.inject(headers)
        return stamps.put(job, META, headers)

    async def traced(ctx: Context[Any], call: Next) -> Any:
        sent = propagate.extract(stamps.taken(ctx.meta, META), contexts.Context())
        origin = trace.get_current_span(sent).get_span_context()
        follows = origin.is_valid and ctx.attempt == 1 and _age(ctx) <= near
        links = [Link(origin)] if origin.is_valid and not follows else []
        begun = time.perf_counter()
        attributes = _run(ctx)
        with tracer.start_as_current_span(
            f"process {ctx.queue}",
            context=sent if follows else contexts.Context(),
            kind=SpanKind.CONSUMER,
            links=links,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            outcome = "returned"
            try:
                return await call()
            except BaseException as error:
                outcome = type(error).__name__
                # A snooze or a throttle is what the task wanted to say, and no error.
                if not isinstance(error, Signal) or isinstance(error, Fail):
                    span.record_exception(error)
                    span.set_status(Status(StatusCode.ERROR, outcome))
                raise
            finally:
                span.set_attribute(OUTCOME, outcome)
                measured = {SYSTEM: "treadle", OPERATION: "process", DESTINATION: ctx.queue, TASK: ctx.task}
                took.record(time.perf_counter() - begun, measured)

    app.client.stamps.append(stamp)
    app.middleware(traced)


def _sent(job: NewJob) -> Mapping[str, str | int]:
    return {
        SYSTEM: "treadle",
        OPERATION: "send",
        OPERATION_TYPE: "send",
        DESTINATION: job.queue,
        MESSAGE_ID: job.id,
        BODY_SIZE: len(job.args),
        TASK: job.task,
    }


def _run(ctx: Context[Any]) -> Mapping[str, str | int]:
    reason = {} if ctx.reason is None else {REASON: ctx.reason}
    return {
        SYSTEM: "treadle",
        OPERATION: "process",
        OPERATION_TYPE: "process",
        DESTINATION: ctx.queue,
        MESSAGE_ID: ctx.job_id,
        TASK: ctx.task,
        ATTEMPT: ctx.attempt,
        POD: ctx.pod or "",
        SLOT: ctx.slot or "",
        PRIORITY: ctx.priority,
        RUN_AT: datetime.fromtimestamp(ctx.job.run_at, UTC).isoformat(),
        CREATED_AT: ctx.created_at.isoformat(),
        ERROR_COUNT: ctx.job.error_count,
        **reason,
    }


def _age(ctx: Context[Any]) -> float:
    """How long after its enqueue this run started, by the storage's clock."""
    return 0.0 if ctx.started_at is None else (ctx.started_at - ctx.created_at).total_seconds()
