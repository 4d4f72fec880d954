"""Sentry: errors of tasks with their job, traces from the enqueue to the run, check-ins of schedules.

    import sentry_sdk
    from treadle.contrib.sentry import instrument

    sentry_sdk.init(…)
    instrument(app)

What a task raises is an event, with the job's id, task, queue and attempt as tags; never its arguments. Snooze,
Throttle, Cancel and RetryAfter are no errors. With `last_attempt_only=True` only what ends a job is sent.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

from ..app import App
from ..context.context import Context
from ..core.errors import MissingExtra
from ..core.job import NewJob
from ..core.outcome import Fail, Signal
from ..middleware import Next
from . import stamps

try:
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.crons.consts import MonitorStatus
    from sentry_sdk.integrations.logging import ignore_logger
except ImportError as missing:
    raise MissingExtra("treadle.contrib.sentry", "sentry-sdk", "sentry") from missing

META: Final = "treadle:sentry"
ORIGIN: Final = "auto.queue.treadle"

_instrumented: WeakSet[App] = WeakSet()


def instrument(app: App, *, last_attempt_only: bool = False, monitors: bool = True) -> None:
    """Tell Sentry of this app's enqueues and runs; with `monitors`, check in for what schedules fire. A second call
    changes nothing."""
    if app in _instrumented:
        return
    _instrumented.add(app)
    ignore_logger("treadle.jobs")  # what its lines tell of failures is sent from here, with its exception

    def stamp(job: NewJob) -> NewJob:
        with sentry_sdk.start_span(op="queue.publish", name=job.task, origin=ORIGIN) as span:
            span.set_data("messaging.message.id", job.id)
            span.set_data("messaging.destination.name", job.queue)
            span.set_data("messaging.message.body.size", len(job.args))
            headers = dict(sentry_sdk.get_current_scope().iter_trace_propagation_headers(span=span))
        return stamps.put(job, META, headers)

    async def watched(ctx: Context[Any], call: Next) -> Any:
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            for name, value in (("job", ctx.job_id), ("task", ctx.task), ("queue", ctx.queue)):
                scope.set_tag(f"treadle.{name}", value)
            scope.set_tag("treadle.attempt", ctx.attempt)
            transaction = sentry_sdk.continue_trace(
                stamps.taken(ctx.meta, META), op="queue.process", name=ctx.task, origin=ORIGIN
            )
            with sentry_sdk.start_transaction(transaction) as span:
                span.set_data("messaging.message.id", ctx.job_id)
                span.set_data("messaging.destination.name", ctx.queue)
                span.set_data("messaging.message.retry.count", ctx.attempt - 1)
                span.set_data("messaging.message.receive.latency", ctx.waited * 1000)
                return await _checked_in(ctx, call, span)

    async def _checked_in(ctx: Context[Any], call: Next, span: Any) -> Any:
        slug = ctx.schedule if monitors else None
        check_in = None if slug is None else capture_checkin(monitor_slug=slug, status=MonitorStatus.IN_PROGRESS)
        status = MonitorStatus.OK
        try:
            answer = await call()
            span.set_status("ok")
            return answer
        except BaseException as error:
            if _is_error(error):
                status = MonitorStatus.ERROR
                span.set_status("internal_error")
                if not last_attempt_only or ctx.attempt >= ctx.max_attempts or isinstance(error, Fail):
                    sentry_sdk.capture_exception(error)
            raise
        finally:
            if slug is not None:
                capture_checkin(monitor_slug=slug, check_in_id=check_in, status=status)

    app.client.stamps.append(stamp)
    app.middleware(watched)


def _is_error(error: BaseException) -> bool:
    return isinstance(error, Fail) or (isinstance(error, Exception) and not isinstance(error, Signal))
