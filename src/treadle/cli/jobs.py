"""`treadle jobs`: find, show, and change what is there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from ..core import answer as answering
from ..core import duration, payload
from ..core.text import visible_lines
from . import bulk, here, joblogs, members, mutes, shared
from .command import Invocation, Verbs
from .params import DURATION, INSTANT, QUEUE, REASON
from .target import with_storage
from .timeline import timeline

if TYPE_CHECKING:
    from ..app import App
    from ..core.logline import LogView
    from ..core.view import ErrorView, JobView

PAGE: Final = 500
_MESSAGE: Final = 60
_LINES: Final = 10  # of its log, that `show` shows

jobs = Verbs(
    "jobs",
    help="Find, show and change jobs.",
    examples=("treadle jobs find 'state:failed age:<1h'", "treadle jobs revive 'state:failed error:Timeout' --dry-run"),
)
jobs.add_command(timeline)
jobs.add_command(here.run)
jobs.add_command(joblogs.logs)
jobs.add_command(joblogs.tail)
jobs.add_command(mutes.mute)
jobs.add_command(mutes.unmute)
jobs.aliases = {"retry": "revive", "remove": "delete"}


@jobs.verb(
    "find",
    "treadle jobs find 'state:failed queue:mail age:<1h'",
    "treadle jobs find 'task:send_* args.user.id:42' --limit 500 --json | jq .id",
    "treadle jobs find state:failed --limit 10000 --csv > failed.csv",
)
@click.argument("filter", nargs=-1)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, for a spreadsheet.")
def find(call: Invocation, filter: Sequence[str], limit: int, as_csv: bool) -> None:
    """List jobs, newest first.

    FILTER: words that must all hold. state: queue: task: tag: is:retrying|stuck|due age:>1h attempt:>3 args.user.id:42
    error:Timeout "some text"; a comma means any of, a leading minus means not, a trailing * means begins with. Before a
    FILTER that begins with a minus, write --.
    """

    async def work(app: App) -> tuple[list[JobView], bool, int | None]:
        found: list[JobView] = []
        cursor, newest_only = None, None
        while len(found) < limit:
            page = await app.jobs.find(" ".join(filter), limit=min(PAGE, limit - len(found)), cursor=cursor)
            found += page.jobs
            cursor, newest_only = page.next, page.newest_only
            if cursor is None:
                break
        return found, cursor is not None, newest_only

    found, more, newest_only = with_storage(call.config(), work)
    from ..core.view import as_json

    if as_csv:
        from ..core import sheet

        call.out.csv((*sheet.JOB, *sheet.PAYLOAD), (sheet.job(as_json(job), payload=True) for job in found))
    elif call.out.as_json:
        for job in found:
            call.out.data(as_json(job))
    elif found:
        call.out.table(
            ("id", "state", "task", "queue", "attempt", "run_at", "error"),
            [
                (job.id, job.state, job.task, job.queue, _attempt(job), shared.moment(job.run_at), _error(job.error))
                for job in found
            ],
        )
    else:
        call.out.say("no job matches")
    if newest_only is not None:
        call.out.say(f"only the newest {newest_only:,} rows were looked at: add state:, queue: or task: to see further")
    if more:
        call.out.say(f"there are more: --limit {limit * 2}")


@jobs.verb("show", "treadle jobs show 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
@click.argument("id")
def show(call: Invocation, id: str) -> None:
    """Show one job with its arguments, its result, all its errors, its progress and the last lines of its log."""

    async def look(app: App) -> tuple[JobView, Sequence[LogView]]:
        job = await app.jobs.get(id)
        return job, () if call.out.as_json else await app.jobs.logs(id, limit=_LINES)

    job, lines = with_storage(call.config(), look)
    from ..core.progress import words
    from ..core.view import as_json

    if call.out.as_json:
        call.out.data(as_json(job))
        return
    plain = {name: value for name, value in as_json(job).items() if name not in {"error", "errors"}}
    if job.progress is not None:
        plain["progress"] = words(job.progress)
    call.out.fields((name, _text(value)) for name, value in plain.items() if value not in (None, [], {}))
    for error in job.errors:
        call.out.line("")
        call.out.line(f"attempt {error.attempt}: {error.kind}  {shared.moment(error.ended_at)}".rstrip())
        for line in visible_lines(error.trace or _error(error)).rstrip().splitlines():
            call.out.line(f"  {line}")
    if lines:
        call.out.line("")
        for each in lines:
            call.out.line(joblogs.text_of(call, each))


@jobs.verb("explain", "treadle jobs explain 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
@click.argument("id")
def explain(call: Invocation, id: str) -> None:
    """Say why a job is not running, or where it is, and what to do about it."""
    found = with_storage(call.config(), lambda app: app.jobs.explain(id))
    from ..core.view import as_json

    if call.out.as_json:
        call.out.data(as_json(found))
        return
    call.out.line(visible_lines(found.summary))
    for number, cause in enumerate(found.causes):
        if number:
            call.out.line(f"also: {visible_lines(cause.text)}")
        if cause.until is not None:
            call.out.line(f"  until {shared.moment(cause.until)}")
        if cause.remedy:
            call.out.line(f"  try: {visible_lines(cause.remedy)}")
    if found.blocked:
        call.out.say("needs action: it will not run by itself")


@jobs.verb(
    "cancel",
    "treadle jobs cancel 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11",
    "treadle jobs cancel 'queue:mail state:ready' --dry-run",
)
@members.options
def cancel(call: Invocation, which: Sequence[str], **asked: Any) -> int:
    """Cancel jobs that have not started, and ask those that run to stop. By IDs, or by one FILTER."""
    return members.change(call, members.CANCEL, which, **asked)


@jobs.verb(
    "revive",
    "treadle jobs revive 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11",
    "treadle jobs revive 'state:failed error:Timeout age:<1d' --yes",
)
@members.options
def revive(call: Invocation, which: Sequence[str], **asked: Any) -> int:
    """Give jobs that have ended another life, with all their attempts. By IDs, or by one FILTER."""
    return members.change(call, members.REVIVE, which, **asked)


@jobs.verb("delete", "treadle jobs delete 'state:cancelled finished:>7d' --dry-run")
@members.options
def delete(call: Invocation, which: Sequence[str], **asked: Any) -> int:
    """Forget jobs that have ended, for good. By IDs, or by one FILTER."""
    return members.change(call, members.DELETE, which, **asked)


@jobs.verb(
    "reschedule",
    "treadle jobs reschedule 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --delay 2h",
    "treadle jobs reschedule 'queue:mail state:scheduled' --now --dry-run",
)
@click.option("--at", type=INSTANT, help="The moment: 2026-11-15T09:00Z.")
@click.option("--delay", type=DURATION, help="So long from now: 2h.")
@click.option("--now", is_flag=True, help="At once.")
@members.options
def reschedule(
    call: Invocation, which: Sequence[str], at: datetime | None, delay: float | None, now: bool, **asked: Any
) -> int:
    """Give jobs that have not started another time. By IDs, or by one FILTER."""
    if [at is not None, delay is not None, now].count(True) != 1:
        raise click.UsageError("give one of --at, --delay and --now")

    async def ask(app: App, id: str, who: members.Who) -> str:
        return await app.jobs.reschedule(id, at=at, delay=delay, **who)

    return members.change(call, members.Wish("reschedule", ask, {"at": at, "delay": delay}), which, **asked)


@jobs.verb(
    "move",
    "treadle jobs move 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --to bulk",
    "treadle jobs move 'queue:mail task:newsletter' --to bulk --dry-run",
)
@click.option("--to", "queue", type=QUEUE, required=True, metavar="QUEUE", help="The queue to move them to.")
@members.options
def move(call: Invocation, which: Sequence[str], queue: str, **asked: Any) -> int:
    """Give jobs that have not started another queue. By IDs, or by one FILTER."""

    async def ask(app: App, id: str, who: members.Who) -> str:
        return await app.jobs.move(id, queue, **who)

    return members.change(call, members.Wish("move", ask, {"queue": queue}), which, **asked)


@jobs.verb(
    "priority",
    "treadle jobs priority 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --to 50",
    "treadle jobs priority 'queue:mail tag:vip' --to 50 --yes",
)
@click.option("--to", "number", type=click.IntRange(-100, 100), required=True, help="From -100 to 100; more is sooner.")
@members.options
def priority(call: Invocation, which: Sequence[str], number: int, **asked: Any) -> int:
    """Give jobs that have not started another priority. By IDs, or by one FILTER."""

    async def ask(app: App, id: str, who: members.Who) -> str:
        return await app.jobs.priority(id, number, **who)

    return members.change(call, members.Wish("priority", ask, {"priority": number}), which, **asked)


@jobs.verb(
    "answer",
    "treadle jobs answer 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 '{\"paid\": true}'",
    "treadle jobs answer 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --fail 'card declined'",
)
@click.argument("job", metavar="ID")
@click.argument("result", default="null")
@click.option(
    "--fail", "error", metavar="TEXT", help="Answer with this error: the task meets AnswerFailed, and decides."
)
@click.option("--by", metavar="NAME", help="Who asks for it; by default, who you are here.")
@click.option("--reason", type=REASON, help="Why; kept in the audit.")
def answer(call: Invocation, job: str, result: str, error: str | None, by: str | None, reason: str | None) -> None:
    """Answer a job that waits for somebody outside, by its id instead of its token. RESULT is JSON; null if there is
    none. The job runs again and its task reads it."""
    if error is not None and result != "null":
        raise click.UsageError("give RESULT or --fail, not both")
    said = answering.error(error) if error is not None else answering.result(payload.decode(result, what="RESULT"))
    who = by or shared.operator()
    outcome = with_storage(call.config(), lambda app: app.answers.say_job(job, said, by=who, reason=reason or error))
    if call.out.as_json:
        call.out.data({"outcome": outcome, "kind": said.kind})
    else:
        call.out.line("answered" if outcome == "won" else "answered before, with the same words")


@jobs.verb("failures", "treadle jobs failures", "treadle jobs failures --queue mail --json | jq .filter")
@click.option("--queue", type=QUEUE, help="Of this queue only.")
@click.option("--task", metavar="NAME", help="Of this task only.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N")
def failures(call: Invocation, queue: str | None, task: str | None, limit: int) -> None:
    """Why attempts fail, by cause: task, exception, raising place. Jobs that failed for good and jobs that wait for
    their retry are counted apart, of the newest 10,000 failures and of 10,000 retries.

    Each group has a filter that finds all of it, to show, revive or delete: 'cause:"…"', with `state:failed` or
    `is:retrying` one part of it. "new" was first seen since the last deploy (see `worker_version`) or, where none is
    known, in the last 24 hours; "regressed" is back after a day of silence. Groups that are muted come last.
    """
    found = with_storage(call.config(), lambda app: app.jobs.failures(queue=queue, task=task, limit=limit))
    groups = sorted(found.groups, key=lambda group: group.muted)
    if call.out.as_json:
        for group in groups:
            call.out.data(bulk.as_json(group))
    elif groups:
        call.out.table(
            ("failed", "retrying", "", "task", "error", "place", "first", "last", "message"),
            [
                (
                    str(group.failed),
                    str(group.retrying),
                    "muted" if group.muted else group.mark or "",
                    group.task,
                    group.type,
                    group.place,
                    shared.moment(group.first_at),
                    shared.moment(group.last_at),
                    _short(group.message),
                )
                for group in groups
            ],
        )
        first = groups[0]
        if first.failed:
            call.out.say(f"revive the first group: treadle jobs revive 'state:failed {first.filter}'")
        else:
            call.out.say(f"show the first group: treadle jobs find 'is:retrying {first.filter}'")
    else:
        call.out.say("no job has failed, and none waits for a retry")
    if found.deploy is not None and not call.out.as_json:
        count = sum(group.mark == "new" for group in groups) or "none"
        age = max(0, round((datetime.now(UTC) - found.deploy.first_at).total_seconds()))
        call.out.say(f"{count} new since {found.deploy.version}, deployed {duration.words(age)} ago")
    if found.capped:
        call.out.say(f"only {found.looked_at:,} jobs were looked at: the newest failures and the next retries")


def _attempt(job: JobView) -> str:
    return f"{job.attempt}/{job.max_attempts}" if job.max_attempts is not None else str(job.attempt)


def _error(error: ErrorView | None) -> str:
    if error is None:
        return ""
    said = f"{error.type}: {error.message}" if error.type else error.message or error.kind
    return _short(said)


def _short(said: str) -> str:
    first = said.splitlines()[0] if said else ""
    return first if len(first) <= _MESSAGE else first[: _MESSAGE - 1] + "…"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
