"""`treadle limits`: rate limits of the whole cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from ..core import limit as limiting
from ..core import settings
from . import shared
from .command import Invocation, Verbs
from .confirm import confirm
from .errors import NotFound
from .params import Read
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..operate.limits import LimitView

LIMIT = Read("limit", limiting.check_scope)
RATE = Read("rate", settings.rate)

limits = Verbs(
    "limits",
    help="Rate limits: how many tokens the whole cluster may use, by name.",
    examples=("treadle limits list", "treadle limits set slack 100/m --burst 20"),
)


@limits.verb("list", "treadle limits list", "treadle limits list --json | jq .tokens")
def list_(call: Invocation) -> None:
    """List all limits, those of the queues' own rates among them."""
    found = with_storage(call.config(), lambda app: app.limits.list())
    if call.out.as_json:
        for limit in found:
            call.out.data(dataclasses.asdict(limit))
        return
    if not found:
        call.out.say("no limits: declare one with app.limit(…), or make one with `treadle limits set NAME 100/m`")
        return
    call.out.table(
        ("limit", "rate", "burst", "tokens", "leased"),
        [(each.name, each.rate, str(each.burst), f"{each.tokens:g}", str(each.leased)) for each in found],
    )


@limits.verb("show", "treadle limits show slack")
@click.argument("name", metavar="LIMIT")
def show(call: Invocation, name: str) -> None:
    """Show one limit as it stands now."""
    limit = with_storage(call.config(), lambda app: app.limits.get(name))
    if call.out.as_json:
        call.out.data(dataclasses.asdict(limit))
    else:
        call.out.fields(
            (field, "" if value is None else str(value)) for field, value in dataclasses.asdict(limit).items()
        )


@limits.verb(
    "set",
    "treadle limits set slack 100/m",
    "treadle limits set slack 5/s --burst 20",
    "treadle limits set slack 10/10s",
)
@click.argument("name", type=LIMIT)
@click.argument("rate", type=RATE)
@click.option("--burst", type=click.IntRange(1, limiting.MOST_TOKENS), help="At once; else what a second gives.")
@shared.confirming
def set_(call: Invocation, name: str, rate: float, burst: int | None, yes: bool, env: str | None) -> None:
    """Make a limit or change it. It holds from the next take on; code that declares it does not change it back."""

    async def work(app: App) -> LimitView:
        return await app.limits.set(name, rate, burst=burst, by=shared.operator())

    _change(call, f"set limit {name} to {settings.rate_words(rate)}", work, yes, env)


@limits.verb("drain", "treadle limits drain slack")
@click.argument("name", type=LIMIT)
@shared.confirming
def drain(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """Empty a limit: the far side refuses. It refills by its rate."""

    async def work(app: App) -> LimitView:
        await app.limits.get(name)
        await app.limits.drain(name, by=shared.operator())
        return await app.limits.get(name)

    _change(call, f"drain limit {name}", work, yes, env)


@limits.verb("remove", "treadle limits remove slack")
@click.argument("name", type=LIMIT)
@shared.confirming
def remove(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """Forget a limit. Tasks that still ask for it fail; one that code declares comes back with its declared rate."""

    async def work(app: App) -> LimitView:
        limit = await app.limits.get(name)
        if not await app.limits.remove(name, by=shared.operator()):
            raise NotFound(f"no limit {name}")
        return limit

    _change(call, f"remove limit {name}", work, yes, env, "removed")


def _change(
    call: Invocation,
    what: str,
    work: Callable[[App], Awaitable[LimitView]],
    yes: bool,
    env: str | None,
    said: str | None = None,
) -> None:
    config = call.config()
    if config.production or env is not None:
        confirm(call.out, config, what, yes=yes, env=env)
    limit = with_storage(config, work)
    if call.out.as_json:
        call.out.data(dataclasses.asdict(limit))
    else:
        call.out.line(f"{limit.name}  {said or f'{limit.rate}, burst {limit.burst}, {limit.tokens:g} tokens now'}")
