"""One act upon all jobs that a filter describes: look first, ask, then work it off with a bar.

The operation is a row in the storage. Whoever kills this command kills nothing else: a worker goes on with it, or
`treadle operations resume`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from ..config import Config
from . import confirm as confirming
from . import shared
from .command import Invocation
from .errors import DONE, FAILED
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..core.operation import Act
    from ..core.records import OperationView, Preview
    from ..operate.operations import Options, Progress

_WATCHED: Final = 1_000  # fewer are done before a bar is drawn


def change(
    call: Invocation, act: Act, filter: str, options: Options, *, dry_run: bool, yes: bool, env: str | None
) -> int:
    """Ask, do it, and tell what came of it."""
    config = call.config()
    preview = with_storage(config, lambda app: _usable(app, act, filter, options))
    if dry_run:
        return show(call, preview)
    if not preview.matched:
        call.out.say("no job matches")
        if call.out.as_json:
            nothing = dict.fromkeys(("matched", "changed", "too_late", "refused"), 0)
            call.out.data({"id": None, "act": act, "filter": preview.filter, "state": "finished", **nothing})
        return DONE
    what = f"{act} {many(preview)}: {counted(preview.states)}"
    confirming.confirm(call.out, config, what, yes=yes, env=env)

    async def begin(app: App) -> OperationView:
        return await app.operations.start(act, filter, attended=True, **options)

    begun = with_storage(config, begin)
    call.out.say(f"operation {begun.id}")
    return follow(call, config, begun.id, None if preview.capped else preview.matched)


async def _usable(app: App, act: Act, filter: str, options: Options) -> Preview:
    try:
        return await app.operations.preview(act, filter, **options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def follow(call: Invocation, config: Config, id: str, total: int | None) -> int:
    """Work it off here, with a bar where somebody watches."""
    try:
        with _bar(call, total) as progress:
            done = with_storage(config, lambda app: app.operations.run(id, progress))
    except KeyboardInterrupt:
        _interrupted(call, config, id)
        raise
    return tell(call, done)


def tell(call: Invocation, done: OperationView) -> int:
    if call.out.as_json:
        call.out.data(as_json(done))
    else:
        parts = [f"{done.act}: {done.changed:,} changed of {done.matched:,}"]
        parts += [
            f"{number:,} {said}" for number, said in ((done.too_late, "too late"), (done.refused, "refused")) if number
        ]
        parts += [done.state] if done.state != "finished" else []
        call.out.line(", ".join(parts))
    if done.error:
        call.out.warn(f"operation {done.id} failed: {done.error}")
    return DONE if done.state == "finished" and done.changed == done.matched else FAILED


def show(call: Invocation, preview: Preview) -> int:
    """What would be done, and nothing else."""
    if call.out.as_json:
        call.out.data(
            {
                "action": preview.act,
                "filter": preview.filter,
                "matched": preview.matched,
                "capped": preview.capped,
                "fit": preview.changes,
                "states": preview.states,
                "queues": preview.queues,
                "tasks": preview.tasks,
                "samples": list(preview.samples),
            }
        )
        return DONE
    changes = shared.many(preview.changes)
    total = f"{preview.matched:,}{'+' if preview.capped else ''}"
    split = f": {counted(preview.states)}" if preview.matched else ""
    call.out.line(f"{preview.act} would change {changes} of {total}{split}")
    if preview.capped:
        call.out.line(f"at least {preview.matched:,}: counting stopped after a second, and there may be more")
    if preview.matched > preview.changes:
        call.out.line(f"{preview.matched - preview.changes:,} {preview.others}")
    for name, numbers in (("queues", preview.queues), ("tasks", preview.tasks)):
        if len(numbers) > 1:
            call.out.line(f"{name}: {counted(numbers)}")
    for id in preview.samples:
        call.out.line(f"  {id}")
    return DONE


def many(preview: Preview) -> str:
    return f"{preview.matched:,}+ jobs" if preview.capped else shared.many(preview.matched)


def counted(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number)


def as_json(view: Any) -> dict[str, Any]:
    from ..core import view as views

    return views.as_json(view)


@contextmanager
def _bar(call: Invocation, total: int | None) -> Generator[Progress | None]:
    if not call.out.shows_progress or (total is not None and total < _WATCHED):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def progress(done: OperationView) -> None:
            said = f"{done.act}  {done.changed:,} changed  {done.too_late:,} too late  {done.refused:,} refused"
            bar.update(task, completed=done.matched, description=said)

        yield progress


def _interrupted(call: Invocation, config: Config, id: str) -> None:
    question = f"stop operation {id}? (no: a worker goes on with it, or `treadle operations resume {id}`)"
    if confirming.is_attended() and click.confirm(question, err=True):
        with_storage(config, lambda app: app.operations.stop(id, by=shared.operator()))
        call.out.say(f"operation {id} stops before its next chunk")
    else:
        call.out.say(f"operation {id} is left to the workers; `treadle operations stop {id}` ends it")
