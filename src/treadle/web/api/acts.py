"""Acts upon one job. Each is one Change: it loses races cleanly, and the answer says what is true now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...core import answer as answering
from ...core.errors import AnswerStale, Conflict
from ..problem import Problem
from ..routing import Call, Routes
from .jobs import shown
from .shapes import DurationText, Instant, Name, Reason, job_id

routes = Routes()

Priority = Annotated[int, Meta(ge=-100, le=100, description="Higher is sooner.")]


class Why(Struct, forbid_unknown_fields=True, kw_only=True):
    reason: Reason | None = None


class When(Struct, forbid_unknown_fields=True, kw_only=True):
    """`at` or `delay`; or `now`."""

    at: Instant | None = None
    delay: DurationText | None = None
    now: bool = False
    reason: Reason | None = None


class Revive(Struct, forbid_unknown_fields=True, kw_only=True):
    at: Instant | None = None
    delay: DurationText | None = None
    priority: Priority | None = None
    queue: Name | None = None
    reason: Reason | None = None


class SetPriority(Struct, forbid_unknown_fields=True, kw_only=True):
    priority: Priority
    reason: Reason | None = None


class Move(Struct, forbid_unknown_fields=True, kw_only=True):
    queue: Name
    reason: Reason | None = None


class Acted(Struct, kw_only=True):
    """What was achieved, and the job as it is now; null once it is removed."""

    outcome: str
    job: Any


async def _act(call: Call[Any, Any], ask: Callable[[str], Awaitable[str]]) -> Any:
    """Do it, and answer with what is true now. The client's verb writes the line in the audit."""
    id = job_id(call.path["id"])
    try:
        outcome = await ask(id)
    except (Conflict, AnswerStale) as error:
        state = (await call.app.jobs.get(id)).state
        raise Problem("conflict", str(error), fields={"state": state}) from None
    if outcome == "not found":
        raise Problem("not_found", f"there is no job {id}")
    now: dict[str, Any] | None = None if outcome == "removed" else await shown(call, id)
    if outcome == "too late":
        state = "gone" if now is None else now["state"]
        raise Problem("conflict", f"job {id} is {state}: it has ended", fields={"state": state})
    return {"outcome": outcome, "job": now}


def instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise Problem("validation", "it must be a moment with a zone, for example 2026-11-15T09:00:00Z") from None


@routes.api("POST", "/jobs/{id}/revive", action="revive", body=Revive, answer=Acted, problems=(409,))
async def revive(call: Call[None, Revive]) -> Any:
    """Give a job that has ended another life, with all its attempts."""
    body = call.body
    given: dict[str, Any] = {"delay": body.delay, "priority": body.priority, "queue": body.queue, **_who(call)}
    return await _act(call, lambda id: call.app.jobs.revive(id, at=instant(body.at), **given))


@routes.api("POST", "/jobs/{id}/cancel", action="cancel", body=Why, answer=Acted, problems=(409,))
async def cancel(call: Call[None, Why]) -> Any:
    """Cancel a job that has not started; ask one that runs to stop (`asked`, and `cancel_wanted`)."""
    return await _act(call, lambda id: call.app.jobs.cancel(id, **_who(call)))


@routes.api("POST", "/jobs/{id}/reschedule", action="reschedule", body=When, answer=Acted, problems=(409,))
async def reschedule(call: Call[None, When]) -> Any:
    """Give a job that has not started another time; `now` runs it at once."""
    body = call.body
    if [body.at is not None, body.delay is not None, body.now].count(True) != 1:
        raise Problem("validation", "give one of at, delay and now")
    return await _act(
        call, lambda id: call.app.jobs.reschedule(id, at=instant(body.at), delay=body.delay, **_who(call))
    )


@routes.api("POST", "/jobs/{id}/priority", action="priority", body=SetPriority, answer=Acted, problems=(409,))
async def priority(call: Call[None, SetPriority]) -> Any:
    """Give a job that has not started another priority."""
    return await _act(call, lambda id: call.app.jobs.priority(id, call.body.priority, **_who(call)))


@routes.api("POST", "/jobs/{id}/move", action="move", body=Move, answer=Acted, problems=(409,))
async def move(call: Call[None, Move]) -> Any:
    """Give a job that has not started another queue."""
    return await _act(call, lambda id: call.app.jobs.move(id, call.body.queue, **_who(call)))


class Answer(Struct, forbid_unknown_fields=True, kw_only=True):
    """One of result, error and again; none of them is the result null."""

    result: Annotated[Any, Meta(description="Any JSON, 1 MiB at most: the task reads it.")] = UNSET
    error: Annotated[Any, Meta(description="Mostly text: the task meets AnswerFailed, and decides.")] = UNSET
    again: DurationText | UnsetType = UNSET
    reason: Reason | None = None


@routes.api("POST", "/jobs/{id}/answer", action="answer", body=Answer, answer=Acted, problems=(409,))
async def answer(call: Call[None, Answer]) -> Any:
    """Answer a job that waits for an outside answer, without its token: with a result, with an error, or to try again
    after a while."""
    body = call.body
    given = {name: value for name in ("result", "error", "again") if (value := getattr(body, name)) is not UNSET}
    if len(given) > 1:
        raise Problem("validation", "give one of result, error and again")
    said = (
        answering.again(given["again"])
        if "again" in given
        else answering.error(given["error"])
        if "error" in given
        else answering.result(given.get("result"))
    )
    return await _act(call, lambda id: call.app.answers.say_job(id, said, **_who(call)))


@routes.api("DELETE", "/jobs/{id}", action="delete", body=Why, answer=Acted, problems=(409,))
async def delete(call: Call[None, Why]) -> Any:
    """Forget a job that has ended. One that is alive is refused: cancel it first."""
    return await _act(call, lambda id: call.app.jobs.remove(id, only_ended=True, **_who(call)))


def _who(call: Call[Any, Any]) -> dict[str, Any]:
    return {"by": call.by, "reason": call.body.reason}
