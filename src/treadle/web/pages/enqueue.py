"""Enqueue by hand: a new job, or one like another with edited arguments."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from ...core.command_line import Part, argument, command, option
from ...core.errors import PayloadError
from ...core.redact import MASK
from ..api.shapes import job_id
from ..problem import Problem
from ..routing import Call, Routes, check_keys
from ..schema import schema_of
from . import arguments as forms
from . import words
from .asking import Field, Question, ask
from .frame import done

routes = Routes()


class Like(Struct):
    like: str | None = None
    task: Annotated[str, Meta(max_length=128)] | None = None
    json: bool = False  # the arguments as one text, whatever the task's signature says


class Wanted(Struct):
    task: str
    args: str = "{}"
    arg: list[str] = []  # or one by one: names, and their values
    value: list[str] = []
    queue: str | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    delay: str | None = None
    tags: str | None = None
    reason: str | None = None


@routes.page("GET", "/enqueue", action="enqueue", query=Like)
async def ask_enqueue(call: Call[Like, None]) -> Response:
    """A form for a new job, or for one like another."""
    like = None
    if call.query.like:
        like = await call.app.jobs.get(job_id(call.query.like))
    args: Any = {} if like is None else call.web.redact.payload(like.args, call.access)
    masked = like is not None and args != like.args
    task = call.query.task or ("" if like is None else like.task)
    schema = None if call.query.json or not isinstance(args, dict) else _schema(call, task)
    known = [each.name for each in await call.app.catalog.tasks()]
    tags = "" if like is None else ", ".join(like.tags)
    return await ask(
        call,
        Question(
            title="Enqueue a job" if like is None else f"Edit and enqueue as new: {like.task}",
            words="" if like is None else "The job itself stays as it is; this makes another one.",
            note="Secrets are masked: type them anew before you enqueue it." if masked else "",
            action="/enqueue",
            button="Enqueue",
            hidden={} if schema is None else {"task": task},
            other="" if schema is None else call.url("/enqueue", like=call.query.like, task=call.query.task, json=1),
            other_words="" if schema is None else "All arguments as JSON",
            fields=[
                *_asked(task, args, schema, known),
                Field(
                    name="queue", label="Queue", value="" if like is None else like.queue, placeholder="the task's own"
                ),
                Field(name="priority", label="Priority", kind="number", value="" if like is None else like.priority),
                Field(name="delay", label="Delay", placeholder="10m", hint="Empty: at once."),
                Field(name="tags", label="Tags", value=tags, hint="With commas between them."),
                Field(name="reason", label="Reason", hint="Why; everybody sees it."),
            ],
            command=command(
                "treadle enqueue",
                *_said(task, schema),
                option("queue"),
                option("priority"),
                option("delay"),
                option("tags", "--tag", several=True),
                option("reason"),
            ),
            back="/jobs" if like is None else f"/jobs/{like.id}",
        ),
        page="jobs",
    )


@routes.page("POST", "/enqueue", action="enqueue", form=Wanted)
async def enqueue(call: Call[None, Wanted]) -> Response:
    """A new job."""
    body = call.body
    tags = [tag.strip() for tag in (body.tags or "").split(",") if tag.strip()]
    options: dict[str, Any] = {
        "queue": body.queue,
        "priority": body.priority,
        "delay": body.delay,
        "reason": body.reason,
        "tags": tags or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    args = _given(call, body)
    if (here := call.web.whole.find(body.task)) is not None:
        try:
            here.decode(msgspec.json.encode(args).decode())
        except (TypeError, PayloadError) as error:
            raise Problem("validation", str(error), fields={"field": "args"}) from None
    handle = await call.app.enqueue(body.task, args, **given)
    await call.app.audit.note("jobs.enqueue", body.task, by=call.by, reason=body.reason, detail=handle.id)
    return done(call, "Enqueued", f"/jobs/{handle.id}", go=True)


def _schema(call: Call[Any, Any], task: str) -> dict[str, Any] | None:
    """Of its arguments, if its code is here."""
    here = call.web.whole.find(task) if task else None
    return None if here is None else schema_of(here)


def _asked(task: str, args: Any, schema: dict[str, Any] | None, known: list[str]) -> list[Field]:
    if schema is not None:
        return forms.fields(schema, args)
    return [
        Field(name="task", label="Task", value=task, list=known, needed=True),
        Field(
            name="args",
            label="Arguments",
            kind="json",
            value=words.pretty(args),
            hint="A JSON object: names and values.",
        ),
    ]


def _said(task: str, schema: dict[str, Any] | None) -> list[Part]:
    """The task and its arguments on a command line."""
    if schema is not None:
        return [Part(value=task), *forms.parts(schema)]
    return [argument("task", needed=True), argument("args", unless="{}")]


def _given(call: Call[Any, Any], body: Wanted) -> dict[str, Any]:
    if not body.arg:
        return arguments(body.args)
    schema = _schema(call, body.task)
    if schema is None:
        raise Problem("validation", "this task is not known here: give its arguments as JSON", fields={"field": "task"})
    return forms.read(schema, body.arg, body.value)


def arguments(text: str) -> dict[str, Any]:
    """What somebody typed; never what a mask stands in the place of."""
    try:
        check_keys(text, "the text of the arguments")
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem("validation", f"the arguments are not JSON: {error}", fields={"field": "args"}) from None
    if not isinstance(found, dict):
        raise Problem("validation", "the arguments must be a JSON object", fields={"field": "args"})
    if MASK in text:
        raise Problem("validation", f"type the masked values ({MASK}) anew first", fields={"field": "args"})
    return cast("dict[str, Any]", found)
