"""`treadle jobs logs` and `treadle jobs tail`: what tasks have logged, and go on logging."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from ..core.text import visible_lines
from .command import Invocation, verb
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..core.logline import LogView
    from ..core.view import JobView

EVERY: Final = 1.0
MOST_JOBS: Final = 100
_COLOURS: Final = {"warning": "yellow", "error": "red", "critical": "red", "debug": "bright_black"}
_ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})


@verb(
    "logs",
    "treadle jobs logs 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --follow",
    "treadle jobs logs 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --json | jq .text",
)
@click.argument("id")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, metavar="N")
def logs(call: Invocation, id: str, follow: bool, limit: int) -> None:
    """Show what a job's task has logged, oldest first. Of an attempt the last 1000 lines are kept."""

    async def work(app: App) -> None:
        after, told = 0, False
        while True:
            job = await app.jobs.get(id)
            lines = await app.jobs.logs(id, after=after, limit=limit)
            for line in lines:
                _print(call, line)
                after, told = line.n, True
            # The last lines may come a moment after the end: they are written on their pod's own time.
            if not follow or (job.state in _ENDED and not lines):
                break
            await asyncio.sleep(EVERY)
        if not told:
            call.out.say("it has logged nothing")

    with_storage(call.config(), work)


@verb("tail", "treadle jobs tail 'queue:reports'", "treadle jobs tail 'task:shop.*' --json | jq -r .text")
@click.argument("filter", nargs=-1)
@click.option("--once", is_flag=True, help="Only what is there now.")
def tail(call: Invocation, filter: Sequence[str], once: bool) -> None:
    """Follow what running jobs log, and how far they come, until interrupted. By a FILTER, or all of them.

    At most 100 jobs at once, the newest.
    """
    text = " ".join(["state:running", *filter])

    async def work(app: App) -> None:
        seen: dict[str, int] = {}
        said: dict[str, str] = {}
        left: list[str] = []  # that ran at the last look: their last lines may have come since
        while True:
            found = await app.jobs.find(text, limit=MOST_JOBS)
            running = {job.id: job for job in found.jobs}
            for id in [*dict.fromkeys([*left, *reversed(running)])]:
                for line in await app.jobs.logs(id, after=seen.get(id, 0)):
                    seen[id] = line.n
                    _print(call, line, id)
            for job in running.values():
                _tell_progress(call, job, said)
            if once:
                return
            left = [*running]
            seen = {id: n for id, n in seen.items() if id in running}
            said = {id: words for id, words in said.items() if id in running}
            await asyncio.sleep(EVERY)

    with_storage(call.config(), work)


def _tell_progress(call: Invocation, job: JobView, said: dict[str, str]) -> None:
    from ..core.progress import words

    if job.progress is None or call.out.as_json:
        return
    told = words(job.progress)
    if said.get(job.id) != told:
        said[job.id] = told
        call.out.line(f"{job.id}  {job.task}: {visible_lines(told)}")


def _print(call: Invocation, line: LogView, id: str | None = None) -> None:
    if call.out.as_json:
        from ..core.view import as_json

        call.out.data(as_json(line) if id is None else {"id": id, **as_json(line)})
        return
    call.out.line(text_of(call, line, id))


def text_of(call: Invocation, line: LogView, id: str | None = None) -> str:
    """`09:00:01Z  1  info  text`, with the job before it where there are several."""
    level = call.out.paint(f"{line.level:<8}", _COLOURS.get(line.level))
    first, *more = visible_lines(line.text).splitlines() or [""]
    who = "" if id is None else f"{id}  "
    head = f"{who}{line.at:%H:%M:%S}Z  {line.attempt}  {level}"
    return "\n".join([f"{head}  {first}", *(f"    {each}" for each in more)])
