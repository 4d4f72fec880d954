"""Enqueue over HTTP, for other languages. It is for admins: whoever enqueues runs code."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ..problem import Problem, problem_of
from ..routing import Call, Routes
from .acts import Priority, instant
from .shapes import DurationText, Instant, Name

routes = Routes()

MOST: Final = 1000


class NewJob(Struct, forbid_unknown_fields=True, kw_only=True):
    """A job that is wanted. With an `id` of your own (a UUID) it may be sent again: it is enqueued once."""

    task: Annotated[str, Meta(max_length=128, description="The name of the task.")]
    args: Annotated[dict[str, Any], Meta(description="Its arguments, by name.")] = {}
    id: Annotated[str, Meta(max_length=36, description="A UUID, in lower case.")] | None = None
    queue: Name | None = None
    priority: Priority | None = None
    delay: DurationText | None = None
    at: Instant | None = None
    unique: Annotated[str, Meta(max_length=1000)] | None = None
    tags: list[str] = []
    reason: str | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    timeout: DurationText | UnsetType | None = UNSET
    meta: dict[str, Any] | None = None


NewJobs = Annotated[list[NewJob], Meta(min_length=1, max_length=MOST)]


class Enqueued(Struct, kw_only=True, omit_defaults=True):
    """`id` names the job that stands for the request: for a duplicate, the one that holds the key."""

    outcome: Literal["inserted", "duplicate", "replaced", "kept", "refused"]
    id: str | None = None
    error: str | None = None


class EnqueuedMany(Struct):
    items: list[Enqueued]


@routes.api(
    "POST", "/jobs", action="enqueue", body=NewJob | NewJobs, answer=Enqueued, or_answer=EnqueuedMany, status=201
)
async def enqueue(call: Call[None, NewJob | list[NewJob]]) -> Any:
    """Enqueue one job, or a list of up to 1,000 with an outcome each, in order: one that is refused leaves the others
    alone."""
    if isinstance(call.body, NewJob):
        handle = (await call.app.enqueue_many([_request(call, call.body)]))[0]
        await _note(call, [handle.id], 1)
        return {"outcome": handle.outcome, "id": handle.id}
    answers: list[dict[str, Any]] = []
    requests: list[Any] = []
    for each in call.body:
        try:
            requests.append(_request(call, each))
            answers.append({})
        except Exception as error:
            problem = problem_of(error)
            if problem.status >= 500:
                raise
            answers.append({"outcome": "refused", "error": problem.message})
    handles = iter(await call.app.enqueue_many(requests))
    told = [each or {"outcome": (made := next(handles)).outcome, "id": made.id} for each in answers]
    await _note(call, [each["id"] for each in told if "id" in each], len(told))
    return {"items": told}


def _request(call: Call[Any, Any], new: NewJob) -> Any:
    given = {
        name: getattr(new, name) for name in ("id", "queue", "priority", "delay", "reason", "max_attempts", "meta")
    }
    options = {name: value for name, value in given.items() if value is not None}
    if new.at is not None:
        options["at"] = instant(new.at)
    if new.unique is not None:
        options["unique"] = new.unique
    if new.tags:
        options["tags"] = new.tags
    if new.timeout is not UNSET:
        options["timeout"] = new.timeout
    try:
        return call.app.named(new.task, new.args, **options)
    except (TypeError, ValueError) as error:  # arguments or options that do not fit
        raise Problem("validation", str(error)) from None


async def _note(call: Call[Any, Any], made: list[str], asked: int) -> None:
    named = " ".join(made[:10]) + (" …" if len(made) > 10 else "")
    await call.app.audit.note("jobs.enqueue", named, by=call.by, detail=f"{len(made)} of {asked}")
