"""`treadle tasks`: what workers say of the tasks that they know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ..core import names
from . import shared
from .command import Invocation, Verbs
from .errors import NotFound
from .target import with_storage

if TYPE_CHECKING:
    from ..core.view import TaskView

tasks = Verbs(
    "tasks",
    help="The tasks that workers know, who owns them, and where workers disagree.",
    examples=("treadle tasks list", "treadle tasks show shop.welcome"),
)


@tasks.verb("list", "treadle tasks list", "treadle tasks list --json | jq 'select(.pods == [])'")
def list_(call: Invocation) -> None:
    """List the tasks that workers know, or have known."""
    from ..core.view import as_json

    found = with_storage(call.config(), lambda app: app.catalog.tasks())
    if call.out.as_json:
        for task in found:
            call.out.data(as_json(task))
        return
    if not found:
        call.out.say("no tasks: a worker tells of those that it knows when it starts")
        return
    call.out.table(
        ("task", "queue", "executor", "pods", "owner", "note", "description"),
        [
            (task.name, task.queue, task.executor, str(len(task.pods)), task.owner, _note(task), task.description)
            for task in found
        ],
    )


@tasks.verb("show", "treadle tasks show shop.welcome")
@click.argument("name")
def show(call: Invocation, name: str) -> None:
    """Show what is known of one task: its queue, owner and documentation, the workers that know it."""
    from ..core.view import as_json

    found = {task.name: task for task in with_storage(call.config(), lambda app: app.catalog.tasks())}
    task = found.get(name)
    if task is None:
        near = names.suggest(name, found)
        raise NotFound(f"no task {name}" + (f'; did you mean "{near}"?' if near else "; `treadle tasks list` has them"))
    if call.out.as_json:
        call.out.data(as_json(task))
    else:
        call.out.fields(_fields(task))


def _fields(task: TaskView) -> Iterator[tuple[str, str]]:
    yield "task", task.name
    for field in ("queue", "executor", "description", "owner", "docs"):
        if said := getattr(task, field):
            yield field, said
    if task.tags:
        yield "tags", ", ".join(task.tags)
    yield "pods", ", ".join(task.pods) or "none: no live worker knows it"
    if task.seen_at is not None:
        yield "seen_at", shared.moment(task.seen_at) + (" (stale)" if task.stale else "")
    for line in task.drift:
        yield "drift", line


def _note(task: TaskView) -> str:
    if task.drift:
        return "drift"
    return "stale" if task.stale else "" if task.pods else "no worker"
