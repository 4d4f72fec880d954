"""One job: where it is and why, what happened to it, what it was given and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta, Struct
from starlette.responses import Response

from ...core import payload
from ...core.command_line import argument, command, option
from ...core.errors import Conflict, PayloadError, TreadleError
from ...core.instant import instant
from ...core.log_fold import LOOKED_AT, ROOM, FoldedLog, fold, newest
from ...core.logline import LEVELS, MOST_LINES
from ...core.view import ExplanationView, JobView
from ..api.shapes import job_id
from ..counts import FRESH
from ..problem import Problem
from ..redact import HIDDEN
from ..routing import Call, Routes, check_keys
from . import seeing, traces, words
from .asking import Field, Question, ask
from .frame import done, render
from .listed import queue_names

routes = Routes()

T = TypeVar("T")

RUNS = 100
CHILDREN = 8
QUICK = 0.02
RUNS_KEPT = 30.0
SEARCHED = 5_000  # lines of a log
ENDED = ("succeeded", "failed", "cancelled")
NOT_STARTED = ("waiting", "scheduled", "ready")


class Run(Struct):
    """One bar of the strip of earlier runs."""

    id: str
    state: str
    seconds: float
    height: float


class Reading(Struct):
    """`log`: lines of the log that have this text."""

    log: Annotated[str, Meta(max_length=200)] = ""


@routes.page("GET", "/jobs/{id}", action="see", query=Reading)
async def job(call: Call[Reading, None]) -> Response:
    """A job with its timeline, its attempts and its values."""
    id = _id(call)
    found = await call.app.jobs.get(id)
    explanation, timeline, pods, runs, logs, children = await asyncio.gather(
        call.app.jobs.explain(id),
        call.app.history.timeline(id),
        call.app.pods.list(),
        _runs(call, found),
        _logs(call, id),
        _children(call, id),
    )
    seen = seeing.job(call, found)
    kept: object = found.meta
    meta = cast("dict[str, object]", kept) if isinstance(kept, dict) else {}
    return await render(
        call,
        "job.html",
        title=found.task,
        page="jobs",
        topics="jobs",
        filter="",
        job=seen,
        state="retrying" if found.state == "scheduled" and found.attempt else found.state,
        explanation=_said(call, explanation),
        timeline=[replace(line, detail=call.web.redact.text(line.detail)) for line in timeline],
        labels={pod.id: pod.label for pod in pods},
        attempts=[(error, traces.pieces(error.trace)) for error in reversed(seen.errors)],
        runs=runs,
        parent=_name(meta, "treadle:parent"),
        schedule=_name(meta, "treadle:schedule"),
        trace=_name(meta, "traceparent"),
        logs=logs,
        levels=LEVELS,
        children=children,
        hidden=HIDDEN,
        ended=found.state in ENDED,
        not_started=found.state in NOT_STARTED,
        ways=_ways(call, id),
    )


def _name(meta: Mapping[str, object], key: str) -> str | None:
    value = meta.get(key)
    return value if isinstance(value, str) else None


def _said(call: Call[Any, Any], found: ExplanationView) -> ExplanationView:
    """Its words may hold those of an error."""
    causes = tuple(replace(each, text=call.web.redact.text(each.text)) for each in found.causes)
    return replace(found, summary=call.web.redact.text(found.summary), causes=causes)


def _ways(call: Call[Any, Any], id: str) -> list[str]:
    origin = f"{call.request.url.scheme}://{call.request.url.netloc}"
    return [f"treadle jobs show {id}", f"curl '{origin}{call.url(f'/api/v1/jobs/{id}')}'", f'app.jobs.get("{id}")']


def _id(call: Call[Any, Any]) -> str:
    return job_id(call.path["id"])


async def _runs(call: Call[Any, Any], found: JobView) -> list[Run]:
    """The last runs of the same task, oldest first, as bars; none if they are so rare that nobody should wait."""
    app, task = call.app, found.task

    async def look() -> list[Run]:
        return _bars((await app.jobs.find(f'task:"{task}" state:succeeded,failed,cancelled', limit=RUNS)).jobs)

    return await _quickly(call, ("runs", task), look, fresh=RUNS_KEPT) or []


def _bars(jobs: Sequence[JobView]) -> list[Run]:
    took = [
        (each, (each.finished_at - each.started_at).total_seconds())
        for each in reversed(jobs)
        if each.started_at and each.finished_at and each.finished_at >= each.started_at
    ]
    longest = max((seconds for _, seconds in took), default=0.0) or 1.0
    return [Run(each.id, each.state, seconds, max(2.0, 46 * seconds / longest)) for each, seconds in took]


async def _children(call: Call[Any, Any], id: str) -> list[JobView] | None:
    """The newest jobs that it made, and one more if there are more; None if no quick answer is to be had: no index
    knows them, and the page does not wait for a long look."""
    app = call.app
    page = await _quickly(call, ("children", id), lambda: app.jobs.find(f"parent:{id}", limit=CHILDREN + 1))
    return None if page is None or (page.newest_only is not None and not page.jobs) else list(page.jobs)


async def _quickly(
    call: Call[Any, Any], key: tuple[str, ...], look: Callable[[], Awaitable[T]], *, fresh: float = FRESH
) -> T | None:
    """Nobody waits for what an index does not have: the next look may find it."""
    try:
        return await call.web.counts.quickly(key, look, within=QUICK, fresh=fresh)
    except (TreadleError, ValueError):
        return None


async def _logs(call: Call[Reading, None], id: str) -> FoldedLog | None:
    """The newest lines, or those among many that have a text; None if they may not be seen. Secrets are masked first:
    nobody finds one by looking for it."""
    if not call.access.may("payload"):
        return None
    text = call.query.log.strip()
    limit = SEARCHED if text else MOST_LINES + 1
    lines = await call.app.jobs.logs(id, limit=limit)

    def seen() -> FoldedLog:
        kept = newest(lines, LOOKED_AT if text else ROOM)
        shown = [replace(line, text=call.web.redact.text(line.text)) for line in kept]
        return fold(shown, text=text, skipped=len(lines) - len(kept), more=len(lines) == limit)

    return await asyncio.to_thread(seen) if text else seen()  # a megabyte takes a moment to mask


# What can be done to one job ------------------------------------------------------------------------------------------


@routes.page("POST", "/jobs/{id}/revive", action="revive")
async def revive(call: Call[None, None]) -> Response:
    """Another life for a job that has ended."""
    id = _id(call)
    await call.app.jobs.revive(id, by=call.by)
    return done(call, "Revived: it is ready again, with all its attempts", f"/jobs/{id}")


@routes.page("POST", "/jobs/{id}/now", action="reschedule")
async def run_now(call: Call[None, None]) -> Response:
    """Due at once."""
    id = _id(call)
    await call.app.jobs.reschedule(id, by=call.by)
    return done(call, "Due now: the next free slot takes it", f"/jobs/{id}")


@routes.page("GET", "/jobs/{id}/cancel", action="cancel")
async def ask_cancel(call: Call[None, None]) -> Response:
    """Ask before a cancel."""
    id = _id(call)
    found = await call.app.jobs.get(id)
    runs = found.state == "running"
    return await ask(
        call,
        Question(
            title=f"Cancel {found.task}?",
            words="It runs: its task is asked to stop." if runs else "It has not started, and will not.",
            action=f"/jobs/{id}/cancel",
            button="Ask it to stop" if runs else "Cancel the job",
            danger=True,
            command=command("treadle jobs cancel", id),
            back=f"/jobs/{id}",
        ),
        page="jobs",
    )


@routes.page("POST", "/jobs/{id}/cancel", action="cancel")
async def cancel(call: Call[None, None]) -> Response:
    """Cancel what has not started, ask what runs."""
    id = _id(call)
    said = await call.app.jobs.cancel(id, by=call.by)
    if said == "not found":
        raise Problem("not_found", f"there is no job {id}")
    if said == "too late":
        now = await call.app.jobs.get(id)
        raise Conflict(
            f"too late: it is {now.state}" + (f" since {words.moment(now.finished_at)}" if now.finished_at else "")
        )
    return done(call, "Asked to stop" if said == "asked" else "Cancelled", f"/jobs/{id}")


@routes.page("GET", "/jobs/{id}/delete", action="delete")
async def ask_delete(call: Call[None, None]) -> Response:
    """Ask before it is forgotten."""
    id = _id(call)
    found = await call.app.jobs.get(id)
    return await ask(
        call,
        Question(
            title=f"Delete {found.task}?",
            words="The job, its arguments, its result and its errors are forgotten for good.",
            action=f"/jobs/{id}/delete",
            button="Delete for good",
            danger=True,
            command=command("treadle jobs delete", id),
            back=f"/jobs/{id}",
        ),
        page="jobs",
    )


@routes.page("POST", "/jobs/{id}/delete", action="delete")
async def delete(call: Call[None, None]) -> Response:
    """Forget a job that has ended; one that was revived since the page was drawn is left alone."""
    await call.app.jobs.remove(_id(call), only_ended=True, by=call.by)
    return done(call, "Deleted", "/jobs", go=True)


class When(Struct):
    delay: str | None = None
    at: Annotated[str, Meta(max_length=40)] | None = None


@routes.page("GET", "/jobs/{id}/reschedule", action="reschedule")
async def ask_reschedule(call: Call[None, None]) -> Response:
    """Ask for another time."""
    id = _id(call)
    found = await call.app.jobs.get(id)
    return await ask(
        call,
        Question(
            title=f"Another time for {found.task}",
            words=f"It is due {words.moment(found.run_at)}.",
            action=f"/jobs/{id}/reschedule",
            button="Reschedule",
            fields=[
                Field(
                    name="delay",
                    label="In",
                    placeholder="2h",
                    hint="From now: 30s, 10m, 1h30m. Empty: use the moment below.",
                ),
                Field(name="at", label="Or at", placeholder="2026-11-15T09:00Z", hint="With its zone."),
            ],
            command=command("treadle jobs reschedule", id, option("delay"), option("at"), some=True),
            back=f"/jobs/{id}",
        ),
        page="jobs",
    )


@routes.page("POST", "/jobs/{id}/reschedule", action="reschedule", form=When)
async def reschedule(call: Call[None, When]) -> Response:
    """Another time for a job that has not started."""
    id = _id(call)
    if call.body.delay is None and call.body.at is None:
        raise Problem("validation", "give one of them: how long from now, or the moment")
    at = None if call.body.at is None else instant(call.body.at)
    await call.app.jobs.reschedule(id, delay=call.body.delay, at=at, by=call.by)
    return done(call, "Rescheduled", f"/jobs/{id}")


class Priority(Struct):
    priority: Annotated[int, Meta(ge=-100, le=100)]


@routes.page("GET", "/jobs/{id}/priority", action="priority")
async def ask_priority(call: Call[None, None]) -> Response:
    """Ask for another priority."""
    id = _id(call)
    found = await call.app.jobs.get(id)
    return await ask(
        call,
        Question(
            title=f"Priority of {found.task}",
            action=f"/jobs/{id}/priority",
            button="Set priority",
            fields=[
                Field(
                    name="priority",
                    label="Priority",
                    kind="number",
                    value=found.priority,
                    hint="From -100 to 100; higher goes first.",
                    needed=True,
                )
            ],
            command=command("treadle jobs priority", id, option("priority", "--to", needed=True)),
            back=f"/jobs/{id}",
        ),
        page="jobs",
    )


@routes.page("POST", "/jobs/{id}/priority", action="priority", form=Priority)
async def priority(call: Call[None, Priority]) -> Response:
    """Another priority for a job that has not started."""
    id = _id(call)
    await call.app.jobs.priority(id, call.body.priority, by=call.by)
    return done(call, f"Priority is {call.body.priority} now", f"/jobs/{id}")


class To(Struct):
    queue: str


@routes.page("GET", "/jobs/{id}/move", action="move")
async def ask_move(call: Call[None, None]) -> Response:
    """Ask for another queue."""
    id = _id(call)
    found = await call.app.jobs.get(id)
    names = await queue_names(call)
    return await ask(
        call,
        Question(
            title=f"Move {found.task} to another queue",
            words=f"It is in {found.queue}.",
            action=f"/jobs/{id}/move",
            button="Move",
            fields=[Field(name="queue", label="Queue", value="", list=names, needed=True)],
            command=command("treadle jobs move", id, option("queue", "--to", needed=True)),
            back=f"/jobs/{id}",
        ),
        page="jobs",
    )


@routes.page("POST", "/jobs/{id}/move", action="move", form=To)
async def move(call: Call[None, To]) -> Response:
    """Another queue for a job that has not started."""
    id = _id(call)
    await call.app.jobs.move(id, call.body.queue, by=call.by)
    return done(call, f"Moved to {call.body.queue}", f"/jobs/{id}")


class Answer(Struct):
    value: str | None = None


@routes.page("GET", "/jobs/{id}/answer", action="answer")
async def ask_answer(call: Call[None, None]) -> Response:
    """Ask for the answer that a job waits for."""
    id = _id(call)
    found = await call.app.jobs.get(id)
    return await ask(
        call,
        Question(
            title=f"Answer {found.task}",
            words=_waits(found) + " It runs again at once, and its task reads this value.",
            action=f"/jobs/{id}/answer",
            button="Answer",
            fields=[
                Field(
                    name="value",
                    label="Answer",
                    kind="json",
                    value="null",
                    rows=5,
                    hint='JSON: {"paid": true}, a "text" in quotes, 42, true or null.',
                )
            ],
            command=command("treadle jobs answer", id, argument("value", needed=True)),
            back=f"/jobs/{id}",
        ),
        page="jobs",
    )


def _waits(found: JobView) -> str:
    until = None if found.waits is None else found.waits.until
    return f"It waits for an answer from outside{'' if until is None else f' until {words.moment(until)}'}."


@routes.page("POST", "/jobs/{id}/answer", action="answer", form=Answer)
async def answer(call: Call[None, Answer]) -> Response:
    """Answer a job that waits with a JSON value."""
    id = _id(call)
    await call.app.answers.give_job(id, _json(call.body.value or ""), by=call.by)
    return done(call, "Answered: it runs again, and its task reads the answer", f"/jobs/{id}")


def _json(text: str) -> object:
    try:
        check_keys(text, "the answer")
        return payload.decode(text, what="the answer")
    except PayloadError as error:
        raise Problem("validation", str(error), fields={"field": "value"}) from None


class Failed(Struct):
    error: Annotated[str, Meta(min_length=1, max_length=1024)]


@routes.page("GET", "/jobs/{id}/fail", action="answer")
async def ask_fail(call: Call[None, None]) -> Response:
    """Ask why there is no answer."""
    id = _id(call)
    found = await call.app.jobs.get(id)
    return await ask(
        call,
        Question(
            title=f"Fail the wait of {found.task}",
            words=_waits(found)
            + " It runs again at once, and its task meets AnswerFailed with this reason: most tasks "
            "fail by it, a task may also try something else.",
            action=f"/jobs/{id}/fail",
            button="Fail the wait",
            danger=True,
            fields=[Field(name="error", label="Reason", needed=True, hint="The task and the audit get it.")],
            command=command("treadle jobs answer", id, option("error", "--fail", needed=True)),
            back=f"/jobs/{id}",
        ),
        page="jobs",
    )


@routes.page("POST", "/jobs/{id}/fail", action="answer", form=Failed)
async def fail(call: Call[None, Failed]) -> Response:
    """Answer a job that waits with an error."""
    id = _id(call)
    await call.app.answers.fail_job(id, call.body.error, by=call.by, reason=call.body.error)
    return done(call, "Its wait has failed: it runs again, and its task meets the error", f"/jobs/{id}")
