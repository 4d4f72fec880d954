"""What an error looks like on the command line: one line, one remedy, one exit code.

`treadle: what is wrong; what to do` on stderr, and `--traceback` for the rest. Errors that are nobody's mistake but
ours keep their traceback: somebody must be able to report them.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Final

import click

from ..core.errors import (
    AnswerNotFound,
    ConfigError,
    FilterError,
    JobNotFound,
    OperationNotFound,
    PayloadError,
    PodNotFound,
    ScheduleNotFound,
    SchemaTooNew,
    SchemaTooOld,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
    TreadleError,
    UnknownLimit,
    UnknownTask,
)
from ..core.text import visible, visible_lines

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
UNHEALTHY: Final = 4
UNREACHABLE: Final = 5
BLOCKED: Final = 70
UNSIGNED: Final = 75
REFUSED: Final = 78
INTERRUPTED: Final = 130


class Locked(StorageTimeout):
    """A call was not answered in time, and the message names the session that holds the lock."""


# The first that fits; a remedy is added only where the message itself cannot know it.
_CODES: Final[tuple[tuple[type[TreadleError], int, str], ...]] = (
    (FilterError, USAGE, "`treadle jobs find --help` shows the language"),
    (PayloadError, USAGE, ""),
    (UnknownTask, USAGE, ""),
    (UnknownLimit, NOT_FOUND, "`treadle limits list` has them"),
    (AnswerNotFound, NOT_FOUND, ""),
    (JobNotFound, NOT_FOUND, "`treadle jobs find` lists what is there"),
    (OperationNotFound, NOT_FOUND, "`treadle operations list` has them"),
    (ScheduleNotFound, NOT_FOUND, "`treadle schedules list` has them"),
    (PodNotFound, NOT_FOUND, "`treadle pods list` has them"),
    (ConfigError, REFUSED, ""),
    (SchemaTooOld, REFUSED, ""),
    (SchemaTooNew, REFUSED, ""),
    (StorageDenied, REFUSED, ""),
    (Locked, UNREACHABLE, ""),
    (StorageUnavailable, UNREACHABLE, "`treadle doctor` looks closer"),
)


class NotFound(TreadleError):
    """Something other than a job that was named and is not there."""


def code_of(error: TreadleError) -> int:
    if isinstance(error, NotFound):
        return NOT_FOUND
    return next((code for kind, code, _ in _CODES if isinstance(error, kind)), FAILED)


def lines_of(error: TreadleError) -> list[str]:
    """What is printed. Several lines only where several things are wrong: settings are checked all at once."""
    remedy = next((remedy for kind, _, remedy in _CODES if isinstance(error, kind)), "")
    said = [line for line in visible_lines(str(error)).splitlines() if line.strip()] or [type(error).__name__]
    if remedy and "treadle " not in said[-1] and "did you mean" not in said[-1]:
        said[-1] += f"; {remedy}"
    return [f"treadle: {line}" for line in said]


def guard(call: Callable[[], object], *, trace: bool) -> int:
    """Run a command, and turn whatever comes out of it into words and an exit code."""
    try:
        code = call()
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:
        # Somebody closed the pipe (`| head`): nobody is left to be told.
        _forget_stdout()
        return DONE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        _show(trace)
        click.echo(visible_lines(_usage(error)), err=True)
        return USAGE if isinstance(error, click.UsageError) else FAILED
    except TreadleError as error:
        _show(trace)
        for line in lines_of(error):
            click.echo(line, err=True)
        return code_of(error)
    except OSError as error:  # the machine's, not ours: a full disk behind stdout, a file that may not be read
        _show(trace)
        click.echo(f"treadle: {visible(str(error))}; --traceback shows where", err=True)
        _forget_stdout()
        return FAILED


def _usage(error: click.ClickException) -> str:
    said = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # a group alone; click before 8.2 has no such class
        return said
    said = said[:1].lower() + said[1:] if said[1:2].islower() else said
    context = getattr(error, "ctx", None)
    # Where the message has its own remedy, behind a semicolon, it is the better one.
    if isinstance(context, click.Context) and ";" not in said:
        said = f"{said.rstrip('.')}; see `{context.command_path} --help`"
    return f"treadle: {said}"


def _show(trace: bool) -> None:
    if trace:
        traceback.print_exc()


def _forget_stdout() -> None:
    """Or the interpreter flushes into the closed pipe at its end, and complains."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass
