"""The command line: `treadle …`. One file for each group of verbs; `main` is the entry point."""

from __future__ import annotations

from typing import Any

import click

from .. import __version__
from .command import COMPLETE, PROGRAM, Root


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"treadle {__version__}")
        ctx.exit()


def _print_completion(ctx: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None:
        from click.shell_completion import get_completion_class

        kind = get_completion_class(shell)
        assert kind is not None
        click.echo(kind(root, {}, PROGRAM, COMPLETE).source())
        ctx.exit()


root: Any = Root(
    PROGRAM,
    help="Durable background jobs: a SQLite file to start with, no broker.",
    examples=(
        "treadle worker -A shop.jobs:app -q mail:20,default",
        "treadle enqueue welcome user_id=42",
        "treadle jobs find 'state:failed age:<1h'",
    ),
    modules={
        "demo": "See it work: a scene of about 20 seconds, nothing kept.",
        "worker": "Serve queues.",
        "dev": "A worker and the dashboard in one process, for while you write code.",
        "web": "Serve the dashboard and the HTTP API.",
        "enqueue": "Ask for a job, by the name of its task.",
        "jobs": "Find, show, run here, cancel, revive, reschedule, move and delete jobs.",
        "answers": "Answer jobs that wait for somebody outside: give, fail, again, beat.",
        "operations": "Acts upon many jobs: list, show, stop, resume.",
        "audit": "Who did what, and when.",
        "queues": "List, pause, resume, scale and set queues.",
        "schedules": "List, add, change, pause, remove and fire schedules.",
        "tasks": "The tasks that workers know, and who owns them.",
        "top": "Watch it all, live; keys pause, cancel and revive.",
        "stats": "How many jobs ended, and how long they waited and ran.",
        "limits": "Rate limits: list, show, set, drain, remove.",
        "locks": "Named locks: list, free.",
        "pods": "List the worker processes.",
        "tokens": "Tokens of the dashboard: add, list, revoke.",
        "db": "The storage itself: status, migrate, backup, copy.",
        "doctor": "Check the whole, and say what helps.",
    },
    params=[
        click.Option(
            ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="And exit."
        ),
        click.Option(
            ["--completion"],
            type=click.Choice(["bash", "zsh", "fish"]),
            is_eager=True,
            expose_value=False,
            callback=_print_completion,
            help='Print what makes the shell complete: eval "$(treadle --completion bash)".',
        ),
        click.Option(["--traceback"], is_flag=True, expose_value=False, help="Show where an error came from."),
    ],
)


def main() -> None:
    root.main()
