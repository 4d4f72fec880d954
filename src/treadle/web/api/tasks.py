"""Tasks over HTTP: which there are, who owns them, which pods know them, and how they are called."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...core.view import TaskView
from ..plain import plain
from ..problem import Problem
from ..routing import Call, Routes
from ..schema import schema_of
from .shapes import PageQuery, listed

routes = Routes()


class Tasks(Struct, kw_only=True):
    items: list[TaskView]
    next: str | None


class TaskDetail(Struct, kw_only=True):
    """`schema` is the JSON Schema of its arguments, and `options` what it is declared with, where its code is here."""

    task: TaskView | None
    schema: dict[str, Any] | None
    options: dict[str, Any] | None


@routes.api("GET", "/tasks", action="see", query=PageQuery, answer=Tasks)
async def tasks(call: Call[PageQuery, None]) -> Any:
    """All tasks that pods know, or have known."""
    return listed(await call.app.catalog.tasks(), lambda each: each.name, call.query)


@routes.api("GET", "/tasks/{name}", action="see", answer=TaskDetail)
async def task(call: Call[None, None]) -> Any:
    """One task: what pods say of it, and how it is called."""
    name = call.path["name"]
    here = call.web.whole.find(name)
    known = await call.app.catalog.task(name if here is None else here.name)
    if known is None and here is None:
        raise Problem("not_found", "no pod has ever told of such a task")
    options = None
    if here is not None:
        chosen = here.options
        options = {
            "queue": call.app.client.queue_of(here),
            "priority": chosen.priority,
            "max_attempts": chosen.max_attempts,
            "timeout": chosen.timeout,
            "tags": list(chosen.tags),
            "unique": chosen.unique is not None,
        }
    return {"task": plain(known), "schema": None if here is None else schema_of(here), "options": options}
