"""`treadle queues`: what is in them, and their live settings."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET

from ..config import Config
from ..core import duration, names, retention, settings
from ..core.gate import OPEN, Gate, closed
from . import bulk, shared
from .command import Invocation, Verbs
from .confirm import confirm
from .errors import NotFound
from .params import DURATION, QUEUE, REASON, UNTIL, Read, count_or_none
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..core.view import QueueView
    from ..core.warnings import ClusterWarning
    from ..operate.operations import Options

queues = Verbs(
    "queues",
    help="What is in the queues, and their live settings.",
    examples=("treadle queues list", "treadle queues pause mail --reason 'provider down' --until 2h"),
)


@queues.verb("list", "treadle queues list", "treadle queues list --json | jq .oldest_ready_seconds")
def list_(call: Invocation) -> None:
    """List all queues with their counts."""

    async def look(app: App) -> tuple[Sequence[QueueView], Sequence[ClusterWarning]]:
        return await app.queues.list(), () if call.out.as_json else await app.warnings()

    found, warnings = with_storage(call.config(), look)
    if call.out.as_json:
        _print_json(call, *found)
        return
    if not found:
        call.out.say("no queues: a queue is there as soon as a job is enqueued to it, or a worker serves it")
        return
    columns = ("queue", "ready", "oldest", "scheduled", "waiting", "running", "succeeded", "failed", "cancelled")
    call.out.table(
        (*columns, "pods", "slots", "max_workers", "gate"),
        [
            (
                queue.name,
                _count(queue, "ready"),
                _oldest(queue),
                *(_count(queue, state) for state in columns[3:]),
                str(queue.pods),
                str(queue.slots),
                "" if queue.max_workers is None else str(queue.max_workers),
                _gate(queue),
            )
            for queue in found
        ],
    )
    shared.warn(call, warnings)


@queues.verb("show", "treadle queues show mail")
@click.argument("name", type=QUEUE)
def show(call: Invocation, name: str) -> None:
    """Show one queue with all its settings."""
    queue = with_storage(call.config(), lambda app: _one(app, name))
    if call.out.as_json:
        _print_json(call, queue)
    else:
        call.out.fields(_fields(queue))


@queues.verb("pause", "treadle queues pause mail --reason 'provider down' --until 2h")
@click.argument("name", type=QUEUE)
@click.option("--reason", type=REASON, help="Why; everybody sees it.")
@click.option("--until", type=UNTIL, help="Resume by itself: 2h, or 2026-11-15T09:00Z.")
@shared.confirming
def pause(call: Invocation, name: str, reason: str | None, until: datetime | None, yes: bool, env: str | None) -> None:
    """Stop claiming from a queue. What runs goes on, and jobs can still be enqueued."""

    async def work(app: App) -> QueueView:
        await _one(app, name)
        return await app.queues.pause(name, reason=reason, until=until, by=shared.operator())

    _change(call, f"pause queue {name}", work, yes, env, _paused)


@queues.verb("resume", "treadle queues resume mail")
@click.argument("name", type=QUEUE)
@shared.confirming
def resume(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """Claim from a queue again."""

    async def work(app: App) -> QueueView:
        await _one(app, name)
        return await app.queues.resume(name, by=shared.operator())

    _change(call, f"resume queue {name}", work, yes, env, lambda queue: f"{queue.name}  resumed")


def _settings(command: Callable[..., None]) -> Callable[..., None]:
    """A flag for each live setting, from the table that also checks them."""
    for setting in reversed(settings.SETTINGS):
        told = f"{setting.says[0].upper()}{setting.says[1:]}. Default: {setting.built_in}."
        command = click.option(
            f"--{setting.name.replace('_', '-')}",
            type=Read(setting.example, functools.partial(_checked, setting.name)),
            metavar=setting.example,
            default=UNSET,
            help=told.replace("`", ""),
        )(command)
    return command


def _checked(name: str, text: str) -> str:
    # What "no limit" is called; of retention it could mean the opposite, and is refused there.
    given = "default" if text.strip().lower() == "none" and not name.startswith("keep_") else text
    settings.read({name: given})
    return given


@queues.verb(
    "set",
    "treadle queues set mail --rate 100/m --max-workers 10",
    "treadle queues set mail --keep-failed forever --timeout default",
    "treadle queues set mail --warm        # end its cool-down",
)
@click.argument("name", type=QUEUE)
@_settings
@click.option("--cool", type=DURATION, help="Claim nothing for so long, as after a Throttle.")
@click.option("--warm", is_flag=True, help="End its cool-down: it is claimed from at once.")
@shared.confirming
def set_(call: Invocation, name: str, cool: float | None, warm: bool, yes: bool, env: str | None, **flags: Any) -> None:
    """Change live settings of a queue; `default` takes one back. Lowering a limit never cancels a run."""
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not UNSET}
    if not given and not warm and cool is None:
        raise click.UsageError("give a setting, for example --rate 100/m; --help has all of them")
    if warm and cool is not None:
        raise click.UsageError("give --cool or --warm, not both")

    async def work(app: App) -> QueueView:
        queue = await _one(app, name)
        if given:
            try:
                queue = await app.queues.set(name, by=shared.operator(), **given)
            except ValueError as error:  # each makes sense alone, but not beside the others
                raise click.UsageError(str(error)) from None
        if cool is not None:
            queue = await app.queues.cool(name, cool, by=shared.operator())
        return await app.queues.warm(name, by=shared.operator()) if warm else queue

    said = [f"{key} {settings.words(key, settings.read({key: value})[key])}" for key, value in given.items()]
    said += [f"cool {duration.words(cool)}"] if cool is not None else []
    said += ["warm"] if warm else []
    _change(call, f"set queue {name}: {', '.join(said)}", work, yes, env, lambda _: f"{name}  {', '.join(said)}")


@queues.verb("scale", "treadle queues scale mail 10", "treadle queues scale mail none")
@click.argument("name", type=QUEUE)
@click.argument("max_workers", metavar="N|none", type=Read("N|none", count_or_none))
@shared.confirming
def scale(call: Invocation, name: str, max_workers: int | None, yes: bool, env: str | None) -> None:
    """Let so many of its jobs run at once, in the whole cluster. Lowering it never cancels a run."""

    async def work(app: App) -> QueueView:
        await _one(app, name)
        return await app.queues.scale(name, max_workers, by=shared.operator())

    said = f"max_workers {settings.words('max_workers', max_workers)}"
    _change(call, f"scale queue {name}: {said}", work, yes, env, lambda _: f"{name}  {said}")


@queues.verb("purge", "treadle queues purge mail --dry-run", "treadle queues purge mail --yes")
@click.argument("name", type=QUEUE)
@click.option("--dry-run", is_flag=True, help="Only say what would be cancelled.")
@click.option("--reason", type=REASON, help="Why; kept in the audit.")
@shared.confirming
def purge(call: Invocation, name: str, dry_run: bool, reason: str | None, yes: bool, env: str | None) -> int:
    """Cancel all jobs of a queue that have not started. What runs goes on, and what has ended stays."""
    with_storage(call.config(), lambda app: _one(app, name))
    asked: Options = {"by": shared.operator(), "reason": reason}
    filter = f"queue:{name} state:waiting,scheduled,ready"
    return bulk.change(call, "cancel", filter, asked, dry_run=dry_run, yes=yes, env=env)


@queues.verb("prune", "treadle queues prune mail", "treadle queues prune --all --json | jq .removed")
@click.argument("name", type=QUEUE, required=False)
@click.option("--all", "everywhere", is_flag=True, help="Of every queue, with a line for each.")
@shared.confirming
def prune(call: Invocation, name: str | None, everywhere: bool, yes: bool, env: str | None) -> None:
    """Remove ended jobs of a queue that are over the age it keeps them for, now. What keeps how long: queues show."""
    if (name is None) is not everywhere:
        raise click.UsageError("name one queue, or say --all")
    config = call.config()
    if config.production or env is not None:
        confirm(call.out, config, f"prune queue {name}" if name else "prune every queue", yes=yes, env=env)

    async def work(app: App) -> dict[str, dict[str, int]]:
        if name is not None:
            await _one(app, name)
        removed = await app.queues.prune_all() if name is None else {name: {"": await app.queues.prune(name)}}
        for queue, counts in removed.items():
            if name is not None or any(counts.values()):
                detail = f"{sum(counts.values())} removed"
                await app.audit.note("queues.prune", queue, by=shared.operator(), detail=detail)
        return removed

    removed = with_storage(config, work)
    if name is not None:
        _print_pruned(call, name, removed[name][""])
    elif call.out.as_json:
        for queue, counts in removed.items():
            call.out.data({"queue": queue, "removed": sum(counts.values()), **counts})
    else:
        states = [state.value for state in retention.STATES]
        call.out.table(("queue", *states), [(queue, *map(str, found.values())) for queue, found in removed.items()])
        call.out.say(f"{shared.many(sum(sum(counts.values()) for counts in removed.values()))} removed")


def _print_pruned(call: Invocation, name: str, removed: int) -> None:
    if call.out.as_json:
        call.out.data({"queue": name, "removed": removed})
    else:
        call.out.line(f"{name}  {shared.many(removed)} removed")


async def _one(app: App, name: str) -> QueueView:
    """A queue that is there. To change one that is not, as `app.queues` would, is here more likely a slip."""
    found = await app.queues.list()
    for queue in found:
        if queue.name == name:
            return queue
    near = names.suggest(name, [queue.name for queue in found])
    raise NotFound(f"no queue {name}" + (f'; did you mean "{near}"?' if near else "; `treadle queues list` has them"))


def _change(
    call: Invocation,
    what: str,
    work: Callable[[App], Awaitable[QueueView]],
    yes: bool,
    env: str | None,
    said: Callable[[QueueView], str],
) -> None:
    config: Config = call.config()
    if config.production or env is not None:
        confirm(call.out, config, what, yes=yes, env=env)
    queue = with_storage(config, work)
    if call.out.as_json:
        _print_json(call, queue)
    else:
        call.out.line(said(queue))


def _print_json(call: Invocation, *found: QueueView) -> None:
    from ..core.view import as_json

    for queue in found:
        call.out.data(as_json(queue))


def _fields(queue: QueueView) -> Iterator[tuple[str, str]]:
    """One queue for eyes: what it is, whether it is open, what is in it, and every setting, the built-in ones too."""
    from ..core.view import as_json

    raw = as_json(queue)
    yield "name", queue.name
    for said in ("description", "owner", "docs"):
        if raw[said]:
            yield said, raw[said]
    if queue.tags:
        yield "tags", ", ".join(queue.tags)
    for line in queue.drift:
        yield "drift", line
    yield "gate", _gate(queue) or OPEN
    if queue.paused_at is not None:
        yield "paused_at", shared.moment(queue.paused_at)
    if queue.cool_exponent:
        yield "throttled", f"{queue.cool_exponent} times in a row"
    for state in ("ready", "scheduled", "waiting", "running", "succeeded", "failed", "cancelled"):
        yield state, _count(queue, state)
    if queue.oldest_ready_seconds is not None:
        yield "oldest", _oldest(queue)
    yield "pods", str(queue.pods)
    yield "slots", str(queue.slots)
    for setting in settings.SETTINGS:
        value = raw[setting.name]
        is_word = isinstance(value, str)
        said = value if is_word else settings.words(setting.name, value)
        yield setting.name, said if value is not None else f"{said} (built in)"
    yield "version", str(queue.version)


def _paused(queue: QueueView) -> str:
    until = f" until {shared.moment(queue.paused_until)}" if queue.paused_until else ""
    return f"{queue.name}  paused{until}"


def _count(queue: QueueView, state: str) -> str:
    from ..core.view import is_at_least

    number: int = getattr(queue, state)
    return f"{number}+" if is_at_least(queue, state) else str(number)


def _oldest(queue: QueueView) -> str:
    seconds = queue.oldest_ready_seconds
    return "" if seconds is None else duration.words(float(round(seconds)))


def _gate(queue: QueueView) -> str:
    """What keeps its jobs from being claimed; empty where it is open."""
    return "; ".join(_said(queue, each) for each in closed(queue, datetime.now(UTC)))


def _said(queue: QueueView, gate: Gate) -> str:
    if gate == "paused":
        until = f" until {shared.moment(queue.paused_until)}" if queue.paused_until else ""
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        return f"paused{until}{by}" + (f": {queue.pause_reason}" if queue.pause_reason else "")
    if gate != "cooling" or queue.cool_until is None:
        return gate
    why = "throttled" if queue.cool_exponent else "set by hand"
    return f"cooling until {shared.moment(queue.cool_until)}: {why}"
