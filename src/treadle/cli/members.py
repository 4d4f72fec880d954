"""One change to many jobs: by ids, or by a filter. Each is told what it won; races are lost cleanly, one by one.

A filter is settled first: the jobs that match now are the members, and one that comes to match later is left alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
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
LIVE: Final = ("waiting", "scheduled", "ready", "running")
ENDED: Final = ("succeeded", "failed", "cancelled")
_MISSING: Final = "not found"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the wish about one job."""

    id: str
    outcome: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """A change that an operator asks for. `others` says what happens to jobs in the states that do not fit it."""

    name: str
    fits: tuple[str, ...]
    others: str
    ask: Callable[[App, str], Awaitable[str]]
    for_good: bool = False


async def _cancel(app: App, id: str) -> str:
    answer = await app.jobs.cancel(id)
    if answer == "not found":
        raise JobNotFound(id)
    if answer == "too late":
        raise Conflict(f"too late: {(await app.jobs.get(id)).state}")
    return answer


async def _revive(app: App, id: str) -> str:
    return await app.jobs.revive(id)


async def _delete(app: App, id: str) -> str:
    answer = await app.jobs.remove(id)
    return answer if answer == "removed" else f"{answer} instead: it had not ended"


CANCEL: Final = Wish("cancel", LIVE, "too late", _cancel)
REVIVE: Final = Wish("revive", ENDED, "refused: they have not ended", _revive)
DELETE: Final = Wish("delete", ENDED, "cancelled instead: they have not ended", _delete, for_good=True)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`ID… | FILTER`, `--dry-run`, `--yes`, `--env`."""
    function = shared.confirming(function)
    function = click.option("--dry-run", is_flag=True, help="Only say what would be changed.")(function)
    return click.argument("which", nargs=-1, required=True, metavar="ID… | FILTER")(function)


def is_filter(which: Sequence[str]) -> bool:
    """Ids hold no colon and no space; whoever means free text writes it in quotes, or adds a key."""
    return any(mark in text for text in which for mark in (":", " ", '"')) or which == ("",)


def change(call: Invocation, wish: Wish, which: Sequence[str], *, dry_run: bool, yes: bool, env: str | None) -> int:
    """Ask, do it, and tell what became of each."""
    config = call.config()
    filter = " ".join(which) if is_filter(which) else None
    if filter is not None:
        counts = with_storage(config, lambda app: app.jobs.count(filter))
        if dry_run:
            return _preview(call, wish, counts, with_storage(config, lambda app: _ids(app, filter, SAMPLES)))
        if not sum(counts.values()):
            call.out.say("no job matches")
            return DONE
        confirm(call.out, config, f"{wish.name} {_many(sum(counts.values()))}: {_by_state(counts)}", yes=yes, env=env)
    elif dry_run:
        counts, known = with_storage(config, lambda app: _states(app, which))
        return _preview(call, wish, counts, known)
    elif config.production or wish.for_good or env is not None:
        confirm(call.out, config, f"{wish.name} {_many(len(which))}", yes=yes, env=env)

    async def work(app: App) -> list[Answer]:
        ids = list(which) if filter is None else await _ids(app, filter)
        return [await ask(app, id, wish.ask) for id in _counted(call, wish, ids)]

    return tell(call, with_storage(config, work))


async def ask(app: App, id: str, wish: Callable[[App, str], Awaitable[str]]) -> Answer:
    try:
        return Answer(id, await wish(app, id))
    except JobNotFound:
        return Answer(id, _MISSING)
    except Conflict as error:
        return Answer(id, str(error).removeprefix(f"job {id} ").removeprefix("is "), refused=True)


def tell(call: Invocation, answers: Sequence[Answer]) -> int:
    """One line for each, and the exit code: refused outranks missing."""
    for answer in answers:
        if call.out.as_json:
            call.out.data({"id": answer.id, "outcome": answer.outcome, "refused": answer.refused})
        else:
            call.out.line(f"{answer.id}  {answer.outcome}")
    refused = sum(answer.refused for answer in answers)
    missing = sum(answer.outcome == _MISSING for answer in answers)
    if refused:
        call.out.say(f"{refused:,} of {_many(len(answers))} refused")
    return FAILED if refused else NOT_FOUND if missing else DONE


async def _ids(app: App, filter: str, most: int | None = None) -> list[str]:
    found: list[str] = []
    cursor = None
    while most is None or len(found) < most:
        page = await app.jobs.find(filter, limit=min(PAGE, most or PAGE), cursor=cursor)
        found += [job.id for job in page.jobs]
        cursor = page.next
        if cursor is None:
            break
    return found


async def _states(app: App, ids: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    counts: dict[str, int] = {}
    known: list[str] = []
    for id in ids:
        state = (await app.jobs.get(id)).state
        counts[state] = counts.get(state, 0) + 1
        known.append(id)
    return counts, known


def _preview(call: Invocation, wish: Wish, counts: Mapping[str, int], samples: Sequence[str]) -> int:
    total = sum(counts.values())
    fit = sum(counts.get(state, 0) for state in wish.fits)
    if call.out.as_json:
        states = {state: number for state, number in counts.items() if number}
        call.out.data({"action": wish.name, "matched": total, "fit": fit, "states": states, "samples": list(samples)})
        return DONE
    call.out.line(f"{wish.name} would change {_many(fit)} of {total:,}{f': {_by_state(counts)}' if total else ''}")
    if total > fit:
        call.out.line(f"{total - fit:,} {wish.others}")
    for id in samples[:SAMPLES]:
        call.out.line(f"  {id}")
    return DONE


def _counted(call: Invocation, wish: Wish, ids: Sequence[str]) -> Iterator[str]:
    """The ids, with a bar on stderr where somebody watches and there is something to watch."""
    if len(ids) < PAGE or not call.out.shows_progress:
        yield from ids
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(ids, description=wish.name, console=Console(stderr=True), transient=True)


def _by_state(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)


def _many(number: int) -> str:
    return f"{number:,} job{'' if number == 1 else 's'}"
