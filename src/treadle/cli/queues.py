"""`treadle queues`: what is in them, and their live settings."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET, UnsetType

from ..config import Config
from ..core import duration, names
from . import shared
from .command import Invocation, Verbs
from .confirm import confirm
from .errors import NotFound
from .params import QUEUE, UNTIL, Read, count_or_none
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..core.view import QueueView

queues = Verbs(
    "queues",
    help="What is in the queues, and their live settings.",
    examples=("treadle queues list", "treadle queues pause mail --reason 'provider down' --until 2h"),
)


@queues.verb("list", "treadle queues list", "treadle queues list --json | jq .oldest_ready_seconds")
def list_(call: Invocation) -> None:
    """List all queues with their counts."""
    found = with_storage(call.config(), lambda app: app.queues.list())
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


@queues.verb("show", "treadle queues show mail")
@click.argument("name", type=QUEUE)
def show(call: Invocation, name: str) -> None:
    """Show one queue with all its settings."""
    queue = with_storage(call.config(), lambda app: _one(app, name))
    if call.out.as_json:
        _print_json(call, queue)
    else:
        from ..core.view import as_json

        call.out.fields((field, _plain(value)) for field, value in as_json(queue).items())


@queues.verb("pause", "treadle queues pause mail --reason 'provider down' --until 2h")
@click.argument("name", type=QUEUE)
@click.option("--reason", help="Why; everybody sees it.")
@click.option("--until", type=UNTIL, help="Resume by itself: 2h, or 2026-11-15T09:00Z.")
@shared.confirming
def pause(call: Invocation, name: str, reason: str | None, until: datetime | None, yes: bool, env: str | None) -> None:
    """Stop claiming from a queue. What runs goes on, and jobs can still be enqueued."""

    async def work(app: App) -> QueueView:
        await _one(app, name)
        return await app.queues.pause(name, reason=reason, until=until, by=_operator())

    _change(call, f"pause queue {name}", work, yes, env, _paused)


@queues.verb("resume", "treadle queues resume mail")
@click.argument("name", type=QUEUE)
@shared.confirming
def resume(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """Claim from a queue again."""

    async def work(app: App) -> QueueView:
        await _one(app, name)
        return await app.queues.resume(name)

    _change(call, f"resume queue {name}", work, yes, env, lambda queue: f"{queue.name}  resumed")


@queues.verb(
    "set",
    "treadle queues set mail --max-workers 10",
    "treadle queues set mail --max-workers none",
    "treadle queues set mail --warm        # end its cool-down",
)
@click.argument("name", type=QUEUE)
@click.option("--max-workers", type=Read("N|none", count_or_none), default=UNSET, help="In the whole cluster.")
@click.option("--warm", is_flag=True, help="End its cool-down: it is claimed from at once.")
@shared.confirming
def set_(
    call: Invocation, name: str, max_workers: int | UnsetType | None, warm: bool, yes: bool, env: str | None
) -> None:
    """Change a live setting of a queue. Lowering a limit never cancels a run."""
    if max_workers is UNSET and not warm:
        raise click.UsageError("give --max-workers or --warm")

    async def work(app: App) -> QueueView:
        queue = await _one(app, name)
        if max_workers is not UNSET:
            queue = await app.queues.set(name, max_workers=max_workers)
        return await app.queues.warm(name) if warm else queue

    limit = [] if max_workers is UNSET else [f"max_workers {'no limit' if max_workers is None else max_workers}"]
    said = ", ".join([*limit, *(["warm"] if warm else [])])
    _change(call, f"set queue {name}: {said}", work, yes, env, lambda _: f"{name}  {said}")


async def _one(app: App, name: str) -> QueueView:
    """A queue that is there. To change one that is not, as `app.queues` would, is here more likely a slip."""
    found = await app.queues.list()
    for queue in found:
        if queue.name == name:
            return queue
    near = names.suggest(name, [queue.name for queue in found])
    raise NotFound(f"no queue {name}" + (f'; did you mean "{near}"?' if near else "; `treadle queues list` has them"))


def _operator() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return None


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


def _paused(queue: QueueView) -> str:
    until = f" until {shared.moment(queue.paused_until)}" if queue.paused_until else ""
    return f"{queue.name}  paused{until}"


def _count(queue: QueueView, state: str) -> str:
    number: int = getattr(queue, state)
    return f"{number}+" if number >= queue.capped_at else str(number)


def _oldest(queue: QueueView) -> str:
    seconds = queue.oldest_ready_seconds
    return "" if seconds is None else duration.words(float(round(seconds)))


def _gate(queue: QueueView) -> str:
    if queue.paused:
        until = f" until {shared.moment(queue.paused_until)}" if queue.paused_until else ""
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        return f"paused{until}{by}" + (f": {queue.pause_reason}" if queue.pause_reason else "")
    if queue.cool_until is None or queue.cool_until <= datetime.now(UTC):
        return ""  # the row keeps its last cool-down until somebody clears it
    return f"cooling until {shared.moment(queue.cool_until)}"


def _plain(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
