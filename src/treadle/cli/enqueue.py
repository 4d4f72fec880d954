"""`treadle enqueue`: ask for a job by the name of its task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..config import Config
from ..core import ids, names, payload
from ..core.errors import PayloadError, ResultNotKept, UnknownTask
from ..core.job import OnConflict
from ..core.text import visible_lines
from ..core.unique import Unique
from . import target, waiting
from .command import Invocation, verb
from .output import as_line
from .params import DURATION, INSTANT, QUEUE

if TYPE_CHECKING:
    from ..app import App
    from ..context.context import Handle


@verb(
    "enqueue",
    "treadle enqueue welcome user_id=42 --delay 5m",
    """treadle enqueue report '{"month": "2026-10"}' --queue reports --wait""",
    "treadle enqueue reindex shop=berlin --unique index:berlin --debounce 5s --cap 1m",
)
@click.argument("task")
@click.argument("arguments", nargs=-1, metavar="[JSON | NAME=VALUE …]")
@click.option("--delay", type=DURATION, help="Not before so long from now: 5m.")
@click.option("--at", type=INSTANT, help="Not before this moment: 2026-11-15T09:00Z.")
@click.option("--queue", type=QUEUE, help="Another queue than the task's own.")
@click.option("--priority", type=click.IntRange(-100, 100), help="-100 to 100, higher first.")
@click.option("--unique", metavar="KEY", help="At most one live job with this key.")
@click.option(
    "--on-conflict",
    type=click.Choice(["skip", "replace", "keep_last"]),
    help="What becomes of it if the key is held. Without --unique the key is made of the task and its arguments.",
)
@click.option("--debounce", type=DURATION, help="Run once nobody has asked for so long; the newest request counts.")
@click.option("--cap", type=DURATION, help="Put it off by --debounce no longer than so long after the first request.")
@click.option("--tag", "tags", multiple=True, help="May be given several times.")
@click.option("--reason", help="Why; kept with the job.")
@click.option("--max-attempts", type=click.IntRange(1), metavar="N")
@click.option("--timeout", type=DURATION, help="How long one attempt may take.")
@click.option("--id", metavar="UUID", help="The job's id: sent twice, it is enqueued once.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result; exit code 1 if it failed.")
@click.option("--timeout-wait", type=DURATION, help="How long to wait at most.")
def enqueue(
    call: Invocation, task: str, arguments: Sequence[str], wait: bool, timeout_wait: float | None, **options: Any
) -> None:
    """Enqueue a job of TASK, with its arguments as a JSON object or as NAME=VALUE.

    A VALUE that is JSON is taken as such (42, true, null, [1,2]), anything else as text.
    """
    given_args = read_arguments(arguments)
    if options["delay"] is not None and options["at"] is not None:
        raise click.UsageError("--delay and --at exclude each other")
    if options["id"] is not None and not ids.is_id(options["id"]):
        raise click.UsageError("--id must be a UUID in its usual form")
    options["unique"] = _rule(
        options.pop("unique"), options.pop("on_conflict"), options.pop("debounce"), options.pop("cap")
    )
    config = call.config()
    app, remark = app_for(config, task, "enqueued")
    given = {name: value for name, value in options.items() if value is not None and value != ()}

    async def ask() -> Handle[Any]:
        try:
            return await _as_value_or_text(lambda: app.enqueue(task, given_args, **given), given_args, arguments)
        except (TypeError, ValueError) as error:  # arguments or options that do not fit
            raise click.UsageError(str(error)) from error

    waits = wait or timeout_wait is not None
    work = _enqueue(call, app, ask, remark, waits, timeout_wait)
    asyncio.run(target.naming_blockers(work, lambda: app.storage))


def _rule(
    key: str | None, on_conflict: OnConflict | None, debounce: float | None, cap: float | None
) -> Unique | str | None:
    if on_conflict is None and debounce is None and cap is None:
        return key
    if on_conflict == "skip" and debounce is not None:
        raise click.UsageError("--debounce replaces or keeps the newest request: leave out --on-conflict skip")
    try:
        return Unique(key=key, on_conflict=on_conflict or "skip", debounce=debounce, cap=cap)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


async def _enqueue(
    call: Invocation,
    app: App,
    ask: Callable[[], Awaitable[Handle[Any]]],
    remark: str,
    wait: bool,
    timeout: float | None,
) -> None:
    created = target.creation(app.url)
    try:
        handle = await ask()  # opens the app, but only for arguments that are accepted: a typo creates no database
        if created:
            call.out.say(created)
        if remark:
            call.out.warn(remark)
        if handle.outcome == "kept":
            call.out.say("kept: a live job holds the key; this one takes over when that one's run has ended")
        elif handle.outcome != "inserted":
            call.out.say(f"{handle.outcome}: a live job holds the key")
        if not wait:
            if call.out.as_json:
                call.out.data({"id": handle.id, "outcome": handle.outcome})
            else:
                call.out.line(handle.id)
            return
        call.out.say(f"{handle.id}: waiting for its end")
        async with waiting.bar_of(call, app, handle.id):
            result, unkept = await _result(handle, timeout)
        if unkept is not None:  # the job has done its work: that is no failure
            call.out.warn(visible_lines(str(unkept)))
        if call.out.as_json:
            said = {"id": handle.id, "outcome": handle.outcome, "state": "succeeded", "result": result}
            call.out.data(said if unkept is None else said | {"warning": f"{payload.NOT_KEPT}{unkept.reason}"})
        else:
            call.out.line(as_line(result))
    finally:
        await app.close()


async def _result(handle: Handle[Any], timeout: float | None) -> tuple[Any, ResultNotKept | None]:
    try:
        return await handle.result(timeout), None
    except ResultNotKept as error:
        return None, error


def read_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """What a task is called with, from the command line."""
    if len(arguments) == 1 and arguments[0].lstrip().startswith(("{", "[")):
        value = _decoded(arguments[0], "the arguments")
        if not isinstance(value, dict):
            raise click.UsageError('the arguments must be an object, for example {"user_id": 42}')
        return value  # pyright: ignore[reportUnknownVariableType]
    found: dict[str, Any] = {}
    for number, argument in enumerate(arguments, 1):
        name, equals, text = argument.partition("=")
        if not equals or not name.isidentifier():  # not shown: it may be the value itself
            raise click.UsageError(f"argument {number} is not NAME=VALUE; or give one JSON object")
        if name in found:
            raise click.UsageError(f"{name} is given twice")
        found[name] = _value(name, text)
    return found


async def _as_value_or_text(
    enqueue: Callable[[], Awaitable[Handle[Any]]], given: dict[str, Any], arguments: Sequence[str]
) -> Handle[Any]:
    """Enqueue; where a value such as `zip=10115` does not fit, its text does for a parameter that is a `str`."""
    try:
        return await enqueue()
    except PayloadError as error:
        text = dict(each.split("=", 1) for each in arguments if "=" in each).get(error.path)
        if text is None or given.get(error.path) == text:
            raise
        given[error.path] = text
        try:
            return await _as_value_or_text(enqueue, given, arguments)
        except PayloadError as other:
            raise (error if other.path == error.path else other) from None


def _value(name: str, text: str) -> Any:
    try:
        return payload.decode(text, what=name)
    except payload.NotJSON:
        return text
    except PayloadError as error:
        raise click.UsageError(f"{error}; for the text itself write {name}='\"…\"'") from None


def _decoded(text: str, what: str) -> Any:
    try:
        return payload.decode(text, what=what)
    except PayloadError as error:
        raise click.UsageError(str(error)) from None


def app_for(config: Config, task: str, done: str) -> tuple[App, str]:
    """The App whose task it is, if there is one to be found; else one that knows nothing but the storage. And what is
    to be said of it."""
    from ..app import App

    app = target.load_app(config) if config.is_set("app") else target.discover(config)
    if app is None:
        return App(config.url), ""
    if app.find(task) is None:
        near = _meant(task, app.tasks)
        said = f'no task "{task}" in the App' + (f'; did you mean "{near}"?' if near else "")
        if config.is_set("app"):
            raise UnknownTask(said + ("" if near else f"; it has {', '.join(sorted(app.tasks)[:10]) or 'none'}"))
        return app, f"{said} ({done} all the same: no App was named by -A)"
    return app, ""


def _meant(task: str, known: Iterable[str]) -> str | None:
    """A task is called `module.function`, and people write `function`."""
    whole = [name for name in known if name.rpartition(".")[2] == task]
    return whole[0] if len(whole) == 1 else names.suggest(task, known)
