"""`treadle schedules`: what is fired when, and how operators change it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from ..config import Config
from ..core import duration, names
from ..core.schedule import MISFIRES, MOST_CATCH_UP, OVERLAPS
from . import shared, target
from .command import Invocation, Verbs
from .confirm import confirm
from .params import DURATION, QUEUE, REASON, Read
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..core.schedule_view import FireView, ScheduleView

NAME = Read("name", lambda text: names.check_name("schedule", text))
PRIORITY = click.IntRange(-100, 100)
NEXT = 10
LAST = 5

schedules = Verbs(
    "schedules",
    help="What is fired when.",
    examples=("treadle schedules list", "treadle schedules pause nightly-report --reason 'wrong numbers'"),
)


@schedules.verb("list", "treadle schedules list", "treadle schedules list --json | jq .next_fire")
@click.option("--removed", is_flag=True, help="Also those that were removed.")
def list_(call: Invocation, removed: bool) -> None:
    """List all schedules."""
    found = with_storage(call.config(), lambda app: app.schedules.list(removed=removed))
    if call.out.as_json:
        _print_json(call, *found)
        return
    if not found:
        call.out.say("no schedules yet: declare one with @app.cron(…), or `treadle schedules add`")
        return
    call.out.table(
        ("schedule", "next", "expression", "zone", "task", "queue", "last", "fired", "skipped", "missed", "state"),
        [
            (
                each.name,
                shared.moment(each.next_fire),
                each.expression,
                each.zone,
                each.task,
                each.queue,
                shared.moment(each.last_fire),
                str(each.fired),
                str(each.skipped),
                str(each.missed),
                _state(each),
            )
            for each in found
        ],
    )


@schedules.verb("show", "treadle schedules show nightly-report")
@click.argument("name", type=NAME)
def show(call: Invocation, name: str) -> None:
    """Show one schedule, in words, with its next ten fires and its last ones."""

    async def work(app: App) -> tuple[ScheduleView, Sequence[Any], Sequence[FireView]]:
        schedule = await app.schedules.get(name)
        try:
            coming = await app.schedules.next(name, NEXT)
        except ValueError:  # its expression cannot be read: `last_error` says so
            coming = ()
        return schedule, coming, await app.schedules.fires(name, LAST)

    schedule, coming, fires = with_storage(call.config(), work)
    from ..core.view import as_json

    shown = as_json(schedule)
    if call.out.as_json:
        instants = [each.isoformat(timespec="milliseconds").replace("+00:00", "Z") for each in coming]
        call.out.data({**shown, "next": instants, "fires": [as_json(each) for each in fires]})
        return
    call.out.fields((field, _plain(value)) for field, value in shown.items())
    call.out.fields(
        [
            ("next", "\n".join(map(shared.moment, coming))),
            ("last", "\n".join(_told(each) for each in fires)),
        ]
    )


_WHOLE: Final = (
    click.argument("name", type=NAME),
    click.argument("expression"),
    click.argument("task"),
    click.argument("arguments", nargs=-1, metavar="[JSON | NAME=VALUE …]"),
    click.option("--tz", default="UTC", show_default=True, help="IANA zone."),
    click.option("--queue", type=QUEUE, help="Another queue than the task's own."),
    click.option("--priority", type=PRIORITY, help="-100 to 100, higher first."),
    click.option("--misfire", type=click.Choice(MISFIRES), default="coalesce", show_default=True),
    click.option("--catch-up", type=click.IntRange(1, MOST_CATCH_UP), default=MOST_CATCH_UP, show_default=True),
    click.option("--overlap", type=click.Choice(OVERLAPS), default="allow", show_default=True),
    click.option("--jitter", type=DURATION, default=0.0, help="Spread the jobs over so long after their time."),
    click.option("--paused", is_flag=True, help="Do not fire it yet."),
    click.option("--now", "now", is_flag=True, help="An interval: also fire at once."),
    shared.confirming,
)


def _whole(function: Callable[..., None]) -> Callable[..., None]:
    """What `add` and `put` take: a schedule in all its fields."""
    for decorate in reversed(_WHOLE):
        function = decorate(function)
    return function


@schedules.verb(
    "add",
    "treadle schedules add nightly '0 3 * * *' shop.jobs.tidy --tz Europe/Berlin",
    "treadle schedules add poll 'every 10m' shop.jobs.poll source=eu --overlap skip",
)
@_whole
def add(
    call: Invocation,
    name: str,
    expression: str,
    task: str,
    arguments: Sequence[str],
    now: bool,
    yes: bool,
    env: str | None,
    **options: Any,
) -> None:
    """Make a schedule at run time. EXPRESSION is a cron line, @hourly and its kin, or 'every 10m'."""
    _make(call, "add", name, expression, task, arguments, now, yes, env, options)


@schedules.verb("put", "treadle schedules put nightly '0 3 * * *' shop.jobs.tidy --tz Europe/Berlin")
@_whole
def put(
    call: Invocation,
    name: str,
    expression: str,
    task: str,
    arguments: Sequence[str],
    now: bool,
    yes: bool,
    env: str | None,
    **options: Any,
) -> None:
    """Make a schedule, or change the one of this name to be so in all its fields. Put twice, it stays as it is; a pause
    stays, too, unless --paused is given."""
    options["paused"] = options["paused"] or None
    _make(call, "put", name, expression, task, arguments, now, yes, env, options)


def _make(
    call: Invocation,
    act: Literal["add", "put"],
    name: str,
    expression: str,
    task: str,
    arguments: Sequence[str],
    now: bool,
    yes: bool,
    env: str | None,
    options: dict[str, Any],
) -> None:
    from .enqueue import app_for, read_arguments

    given = read_arguments(arguments)
    config = call.config()
    app, remark = app_for(config, task, "scheduled")
    if remark:
        call.out.warn(remark)

    async def work() -> ScheduleView:
        async with app:
            try:
                make = app.schedules.add if act == "add" else app.schedules.put
                return await make(
                    name, expression, task, given, first="now" if now else None, by=shared.operator(), **options
                )
            except (TypeError, ValueError) as error:
                raise click.UsageError(str(error)) from error

    _confirm(call, config, f"{act} schedule {name}", yes, env)
    if created := target.creation(app.url):
        call.out.say(created)
    _say(call, asyncio.run(target.naming_blockers(work(), lambda: app.storage)), _added)


@schedules.verb(
    "set",
    "treadle schedules set nightly --expression '0 4 * * *'",
    "treadle schedules set nightly --overlap skip --priority -5",
)
@click.argument("name", type=NAME)
@click.option("--expression", help="A cron line, @hourly and its kin, or 'every 10m'.")
@click.option("--tz", help="IANA zone.")
@click.option("--queue", type=QUEUE)
@click.option("--args", metavar="JSON", help="The job's arguments, all of them.")
@click.option("--priority", type=PRIORITY, help="-100 to 100, higher first.")
@click.option("--misfire", type=click.Choice(MISFIRES))
@click.option("--catch-up", type=click.IntRange(1, MOST_CATCH_UP))
@click.option("--overlap", type=click.Choice(OVERLAPS))
@click.option("--jitter", type=DURATION)
@click.option("--version", type=click.IntRange(1), help="Only if this is still its version.")
@shared.confirming
def set_(call: Invocation, name: str, args: str | None, yes: bool, env: str | None, **options: Any) -> None:
    """Change a schedule. What is changed here stays so through every deploy, until `reset`."""
    from .enqueue import read_arguments

    given = {field: value for field, value in options.items() if value is not None}
    if args is not None:
        given["args"] = read_arguments((args,))
    if not given.keys() - {"version"}:
        raise click.UsageError("give something to change, for example --expression")

    async def work(app: App) -> ScheduleView:
        try:
            return await app.schedules.edit(name, by=shared.operator(), **given)
        except (TypeError, ValueError) as error:
            raise click.UsageError(str(error)) from error

    _change(call, f"set schedule {name}: {', '.join(given)}", work, yes, env, _added)


@schedules.verb("pause", "treadle schedules pause nightly --reason 'wrong numbers'")
@click.argument("name", type=NAME)
@click.option("--reason", type=REASON, help="Why; everybody sees it.")
@shared.confirming
def pause(call: Invocation, name: str, reason: str | None, yes: bool, env: str | None) -> None:
    """Fire nothing until it is resumed."""

    async def work(app: App) -> ScheduleView:
        return await app.schedules.pause(name, reason=reason, by=shared.operator())

    _change(call, f"pause schedule {name}", work, yes, env, lambda each: f"{each.name}  paused")


@schedules.verb("resume", "treadle schedules resume nightly")
@click.argument("name", type=NAME)
@shared.confirming
def resume(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """Fire again from now on. What would have fired meanwhile was not missed."""

    async def work(app: App) -> ScheduleView:
        return await app.schedules.resume(name, by=shared.operator())

    _change(call, f"resume schedule {name}", work, yes, env, _added)


@schedules.verb("remove", "treadle schedules remove nightly")
@click.argument("name", type=NAME)
@shared.confirming
def remove(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """Fire it no more. The next deploy does not bring it back; `reset` does."""

    async def work(app: App) -> ScheduleView:
        return await app.schedules.remove(name, by=shared.operator())

    _change(call, f"remove schedule {name}", work, yes, env, lambda each: f"{each.name}  removed")


@schedules.verb("reset", "treadle schedules reset nightly")
@click.argument("name", type=NAME)
@shared.confirming
def reset(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """As its code declares it, whatever operators did, removal too."""

    async def work(app: App) -> ScheduleView:
        try:
            return await app.schedules.reset(name, by=shared.operator())
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    _change(call, f"reset schedule {name}", work, yes, env, _added)


@schedules.verb("fire", "treadle schedules fire nightly")
@click.argument("name", type=NAME)
@shared.confirming
def fire(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """Enqueue its job now, whether it is paused or not. Its clock goes on as before."""

    async def work(app: App) -> str:
        return (await app.schedules.fire(name, by=shared.operator())).id

    config = call.config()
    _confirm(call, config, f"fire schedule {name}", yes, env)
    job = with_storage(config, work)
    if call.out.as_json:
        call.out.data({"schedule": name, "job": job})
    else:
        call.out.line(job)


def _change(
    call: Invocation,
    what: str,
    work: Callable[[App], Awaitable[ScheduleView]],
    yes: bool,
    env: str | None,
    said: Callable[[ScheduleView], str],
) -> None:
    config = call.config()
    _confirm(call, config, what, yes, env)
    _say(call, with_storage(config, work), said)


def _confirm(call: Invocation, config: Config, what: str, yes: bool, env: str | None) -> None:
    if config.production or env is not None:
        confirm(call.out, config, what, yes=yes, env=env)


def _say(call: Invocation, schedule: ScheduleView, said: Callable[[ScheduleView], str]) -> None:
    if call.out.as_json:
        _print_json(call, schedule)
    else:
        call.out.line(said(schedule))


def _print_json(call: Invocation, *found: ScheduleView) -> None:
    from ..core.view import as_json

    for schedule in found:
        call.out.data(as_json(schedule))


def _added(schedule: ScheduleView) -> str:
    coming = f"next {shared.moment(schedule.next_fire)}" if schedule.next_fire else _state(schedule)
    return f"{schedule.name}  {schedule.words}  {coming}"


def _told(fire: FireView) -> str:
    late = (fire.at - fire.fire_at).total_seconds()
    said = f"{shared.moment(fire.fire_at)}  {fire.job or fire.outcome}"
    if fire.manual:
        return f"{said}  by hand"
    return f"{said}  {duration.words(float(round(late)))} late" if late >= 1 else said


def _state(schedule: ScheduleView) -> str:
    if schedule.removed_at is not None:
        return f"removed {shared.moment(schedule.removed_at)}" + (
            f" by {schedule.removed_by}" if schedule.removed_by else ""
        )
    said: list[str] = []
    if schedule.paused:
        by = f" by {schedule.paused_by}" if schedule.paused_by else ""
        said.append(f"paused{by}" + (f": {schedule.pause_reason}" if schedule.pause_reason else ""))
    if schedule.last_error:
        said.append(f"error: {schedule.last_error}")
    if schedule.undeclared:
        said.append("undeclared")
    if schedule.edited:
        said.append(f"edited: {', '.join(schedule.edited)}")
    return "; ".join(said)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
