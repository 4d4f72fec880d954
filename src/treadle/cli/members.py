"""One change to many jobs: by ids, or by a filter. Each is told what it won; races are lost cleanly, one by one.

Named by their ids, jobs are changed here and now, and each change brings its line in the audit. By a filter, or with
`--all`, it is a durable operation (`bulk`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from ..core.errors import Conflict, JobNotFound
from . import bulk, shared
from .command import Invocation
from .confirm import confirm
from .errors import DONE, FAILED, NOT_FOUND
from .params import REASON
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..core.operation import Act
    from ..core.records import Preview
    from ..operate.operations import Options

_MISSING: Final = "not found"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the wish about one job."""

    id: str
    outcome: str
    refused: bool = False


class Who(TypedDict):
    """Whom the timeline and the audit name, and why."""

    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Wish:
    """A change that an operator asks for: of one job, by `ask`; of all that match, as an operation with `options`."""

    act: Act
    ask: Callable[[App, str, Who], Awaitable[str]]
    options: Options = field(default_factory=dict)  # type: ignore[assignment]
    for_good: bool = False


async def _cancel(app: App, id: str, who: Who) -> str:
    answer = await app.jobs.cancel(id, **who)
    if answer == "not found":
        raise JobNotFound(id)
    if answer == "too late":
        raise Conflict(f"too late: {(await app.jobs.get(id)).state}")
    return answer


async def _revive(app: App, id: str, who: Who) -> str:
    return await app.jobs.revive(id, **who)


async def _delete(app: App, id: str, who: Who) -> str:
    answer = await app.jobs.remove(id, **who)
    return answer if answer == "removed" else f"{answer} instead: it had not ended"


CANCEL: Final = Wish("cancel", _cancel)
REVIVE: Final = Wish("revive", _revive)
DELETE: Final = Wish("delete", _delete, for_good=True)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`ID… | FILTER`, `--all`, `--dry-run`, `--by`, `--reason`, `--yes`, `--env`."""
    function = shared.confirming(function)
    function = click.option("--reason", type=REASON, help="Why; kept in the audit.")(function)
    function = click.option("--by", metavar="NAME", help="Who asks for it; by default, who you are here.")(function)
    function = click.option("--dry-run", is_flag=True, help="Only say what would be changed.")(function)
    function = click.option("--all", "everything", is_flag=True, help="All jobs there are, in the place of a FILTER.")(
        function
    )
    return click.argument("which", nargs=-1, metavar="ID… | FILTER")(function)


def is_filter(which: Sequence[str]) -> bool:
    """Ids hold no colon and no space; whoever means free text writes it in quotes, or adds a key."""
    return any(mark in text for text in which for mark in (":", " ", '"')) or which == ("",)


def change(
    call: Invocation,
    wish: Wish,
    which: Sequence[str],
    *,
    everything: bool,
    dry_run: bool,
    by: str | None,
    reason: str | None,
    yes: bool,
    env: str | None,
) -> int:
    """Ask, do it, and tell what became of it."""
    if bool(which) == everything:
        raise click.UsageError("give the IDs of jobs, a FILTER, or --all; one of them")
    by = by or shared.operator()
    if everything or is_filter(which):
        asked: Options = {**wish.options, "everything": everything, "by": by, "reason": reason}
        return bulk.change(call, wish.act, " ".join(which), asked, dry_run=dry_run, yes=yes, env=env)
    config = call.config()
    if dry_run:
        return bulk.show(call, with_storage(config, lambda app: _preview(app, wish, which)))
    if config.production or wish.for_good or env is not None:
        confirm(call.out, config, f"{wish.act} {shared.many(len(which))}", yes=yes, env=env)

    who = Who(by=by, reason=reason)

    async def work(app: App) -> list[Answer]:
        return [await ask(app, id, wish, who) for id in which]

    return tell(call, with_storage(config, work))


async def ask(app: App, id: str, wish: Wish, who: Who) -> Answer:
    try:
        return Answer(id, await wish.ask(app, id, who))
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
        call.out.say(f"{refused:,} of {shared.many(len(answers))} refused")
    return FAILED if refused else NOT_FOUND if missing else DONE


async def _preview(app: App, wish: Wish, ids: Sequence[str]) -> Preview:
    """Of jobs that are named; one that is not there is an error here."""
    for id in ids:
        await app.jobs.get(id)
    return await app.operations.preview(wish.act, f"id:{','.join(ids)}", **wish.options)
