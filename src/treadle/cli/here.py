"""`treadle jobs run`: the task of a stored job in this process. See `rehearsal`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from ..core import payload
from ..core.text import visible_lines
from . import shared, target
from .command import Invocation, verb
from .confirm import confirm
from .errors import DONE, FAILED
from .output import as_line

if TYPE_CHECKING:
    from .rehearsal import Played


@verb(
    "run",
    "treadle jobs run 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --here -A shop.jobs:app",
    "treadle jobs run 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --here --pdb",
)
@click.argument("id")
@click.option("--here", is_flag=True, help="In this process. Needed: nothing else is meant by `run`.")
@click.option("--pdb", "debug", is_flag=True, help="Stop in the debugger where the task fails.")
@shared.confirming
def run(call: Invocation, id: str, here: bool, debug: bool, yes: bool, env: str | None) -> int:
    """Run the task of a stored job in this process, with its arguments, to see where it fails.

    The job stays as it is, whatever its state: no attempt is charged, nothing is written. Jobs that the task enqueues
    are printed instead, and a ctx.transaction is rolled back. What the task does outside Treadle is real: its mail is
    sent. Its timeout does not hold. The exit code is 1 if it fails.
    """
    if not here:
        raise click.UsageError(
            f"`jobs run` runs a job's task in this process, to look into it: add --here; for a worker to run it again, "
            f"`treadle jobs revive {id}`"
        )
    if debug and call.out.as_json:
        raise click.UsageError("--pdb talks to a person: leave out --json")
    config = call.config()
    app = target.load_app(config)
    target.must_exist(app.url)
    if config.production or env is not None:
        confirm(call.out, config, f"run the task of job {id} here", yes=yes, env=env)
    from . import logs, rehearsal

    logs.configure(config.log_level, config.log_format)
    played = asyncio.run(rehearsal.play(app, id, debug=debug, apart=call.out.as_json, say=call.out.say))
    return _print(call, played)


def _print(call: Invocation, played: Played) -> int:
    job, change = played.job, played.change
    result = None if not isinstance(change.result, str) else payload.decode_trusted(change.result)
    error = change.error
    failed = change.why in ("failed", "retried")
    if call.out.as_json:
        call.out.data(
            {
                "id": job.id,
                "task": job.task,
                "outcome": change.why,
                "result": result,
                "warning": change.warning or None,
                "error": None if error is None else {name: getattr(error, name) for name in _SHOWN},
                "enqueued": [
                    {"task": each.task, "queue": each.queue, "args": payload.decode_trusted(each.args)}
                    for each in played.enqueued
                ],
            }
        )
    elif error is not None:
        call.out.warn(f"{job.task} {_ended(change)}")
        click.echo(visible_lines(error.trace or error.message).rstrip(), err=True)
    elif change.why == "succeeded":
        call.out.line(as_line(result))
        if change.warning:
            call.out.warn(visible_lines(str(change.warning)))
    else:
        call.out.say(f"{job.task} {_ended(change)}")
    return FAILED if failed else DONE


_SHOWN: Final = ("kind", "type", "message", "place", "trace")


def _ended(change: Any) -> str:
    return {
        "failed": "failed; a worker would not try it again",
        "retried": "failed; a worker would try it again",
        "cancelled": "raised Cancel: a worker would end its job as cancelled",
        "snoozed": "raised Snooze: a worker would run it again later",
        "throttled": "raised Throttle: a worker would let its queue cool down",
        "waits": "waits for an answer from outside",
    }.get(change.why, f"ended: {change.why}")
