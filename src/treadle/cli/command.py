"""What all commands share: `--url --app --json --quiet --traceback`, an example under every `--help`, "did you mean",
and modules that are imported only when their command is called."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from .. import config
from ..core import names
from . import errors
from .output import Output

PROGRAM: Final = "treadle"
COMPLETE: Final = "_TREADLE_COMPLETE"
LINE: Final = "treadle.line"  # the whole command line, for whoever starts others with the same


@dataclass(slots=True)
class Invocation:
    """One call of a command: what was given on the line, the settings, and where to print."""

    out: Output
    flags: dict[str, object] = field(default_factory=dict[str, object])

    def config(self, **flags: object) -> config.Config:
        """The settings, with this command's own flags on top."""
        return config.load({**self.flags, **flags})


class Verb(click.Command):
    """A command with examples under its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(formatter, self.examples)


class Verbs(click.Group):
    """A group of commands. A wrong name is answered with the nearest one."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.examples = tuple(examples)
        self.aliases: dict[str, str] = {}

    def verb(self, name: str, *examples: str) -> Callable[[Callable[..., int | None]], Verb]:
        """`verb`, as a member of this group."""

        def made(function: Callable[..., int | None]) -> Verb:
            command = verb(name, *examples)(function)
            self.add_command(command)
            return command

        return made

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = names.suggest(name, self.list_commands(ctx))
            remedy = f'did you mean "{near}"?' if near else f"one of {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f'no such command "{name}"; {remedy}', ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(formatter, self.examples)


class Root(Verbs):
    """The whole of `treadle`. Commands are imported when they are called: `enqueue` must not wait for `doctor`."""

    def __init__(self, *args: Any, modules: dict[str, str], **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in self._modules if self._is_there(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules or not self._is_there(cmd_name):
            return None
        found = getattr(importlib.import_module(f"{__package__}.{cmd_name}"), cmd_name)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._modules[name]) for name in self.list_commands(ctx)])

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        if COMPLETE in os.environ:
            return super().main(args, PROGRAM, complete_var=COMPLETE)
        args = list(sys.argv[1:] if args is None else args)
        sys.exit(errors.guard(lambda: self._call(args), trace="--traceback" in args))

    def _call(self, args: list[str]) -> Any:
        # Not click's own main: it has its own opinion on exit codes and closed pipes.
        try:
            with self.make_context(PROGRAM, list(args)) as context:
                context.meta[LINE] = args
                return self.invoke(context)
        except click.exceptions.Exit as ended:
            return ended.exit_code

    def _is_there(self, name: str) -> bool:
        return importlib.util.find_spec(f"{__package__}.{name}") is not None


def verb(name: str, *examples: str) -> Callable[[Callable[..., int | None]], Verb]:
    """Make a command of a function whose first argument is the Invocation, and which answers with the exit code."""

    def made(function: Callable[..., int | None]) -> Verb:
        def call(url: str | None, app: str | None, as_json: bool, quiet: bool, traceback: bool, **own: Any) -> Any:
            del traceback  # read by Root.main, which also sees the errors of the parsing itself
            return function(Invocation(Output(as_json=as_json, quiet=quiet), {"url": url, "app": app}), **own)

        short = (function.__doc__ or "").partition("\n")[0].partition(". ")[0].rstrip(".") + "."
        build = click.command(name, cls=Verb, examples=examples, short_help=short)
        command = build(functools.update_wrapper(call, function))
        command.params += _shared()
        return command

    return made


def _shared() -> list[click.Parameter]:
    return [
        click.Option(["--url"], metavar="URL", help="The storage, for example sqlite:///treadle.db."),
        click.Option(["-A", "--app"], metavar="MODULE:ATTR", help="Where the App is."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON: one object, or one a line."),
        click.Option(["--quiet"], is_flag=True, help="No words, no colours: only data and errors."),
        click.Option(["--traceback"], is_flag=True, help="Show where an error came from."),
    ]


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if not examples:
        return
    with formatter.section("Examples" if len(examples) > 1 else "Example"):
        # Not write_text: it would wrap a line that is meant to be pasted.
        for example in examples:
            formatter.write(f"{' ' * formatter.current_indent}{example}\n")
