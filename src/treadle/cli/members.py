"""One change to many jobs: by ids, or by a filter. Each is told what it won; races are lost cleanly, one by one.

A filter is settled first: the ids that match now are the members, and a job that comes to match later is left alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from ..core.errors import Conflict, JobNotFound
from . import shared
from .command import Invocation
from .confirm import confirm
from .errors import DONE, FAILED, NOT_FOUND
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App

PAGE: Final = 500
SAMPLES: Final = 10
ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the wish about one job."""

    id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Wish:
    """A change that an operator asks for: its name, the states that refuse it, and the words of success."""

    name: str
    refused_in: frozenset[str]
    won: frozenset[str]
    ask: Callable[[App, str], Awaitable[str]]
    for_good: bool = False


async def _cancel(app: App, id: str) -> str:
    return await app.jobs.cancel(id)


async def _revive(app: App, id: str) -> str:
    return await app.jobs.revive(id)


async def _delete(app: App, id: str) -> str:
    return await app.jobs.remove(id)


LIVE: Final = frozenset({"waiting", "scheduled", "ready", "running"})
CANCEL: Final = Wish("cancel", ENDED, frozenset({"cancelled", "asked"}), _cancel)
REVIVE: Final = Wish("revive", LIVE, frozenset({"revived"}), _revive)
DELETE: Final = Wish("delete", LIVE, frozenset({"removed"}), _delete, for_good=True)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`ID… | FILTER`, `--dry-run`, `--yes`, `--env`."""
    function = shared.confirming(function)
    function = click.option("--dry-run", is_flag=True, help="Only say what would be changed.")(function)
    return click.argument("which", nargs=-1, required=True, metavar="ID… | FILTER")(function)


def change(call: Invocation, wish: Wish, which: Sequence[str], *, dry_run: bool, yes: bool, env: str | None) -> int:
    config = call.config()
    by_filter = is_filter(which)
    if dry_run:
        return _preview(call, wish, which)
    if by_filter:
        text = " ".join(which)
        counts = with_storage(config, lambda app: app.jobs.count(text))
        number = sum(counts.values())
        if not number:
            call.out.say("no job matches")
            return DONE
        confirm(call.out, config, f"{wish.name} {number:,} jobs ({_by_state(counts)})", yes=yes, env=env)
    elif config.production or wish.for_good or env is not None:
        confirm(call.out, config, f"{wish.name} {len(which)} job{'' if len(which) == 1 else 's'}", yes=yes, env=env)

    async def work(app: App) -> list[Answer]:
        ids = await _ids(app, " ".join(which)) if by_filter else list(which)
        return [await _ask(app, wish, id) for id in _with_progress(call, wish, ids)]

    return tell(call, with_storage(config, work), wish.won)
