"""`treadle answers`: say what a job waits for, from outside. The token is the credential."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from ..core import payload
from ..core.duration import seconds
from .command import Invocation, Verbs
from .params import Read
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..operate.answers import AnswerOutcome

AFTER = Read("after", seconds)
_STDIN = "-"

answers = Verbs(
    "answers",
    help="Answer jobs that wait for somebody outside: give, fail, again, beat. TOKEN is what ctx.answer_token gave; "
    "`-` reads it from the first line of stdin, which keeps it out of the list of processes.",
    examples=("treadle answers give TOKEN '{\"paid\": true}'", "treadle answers beat TOKEN"),
)


def _token(_ctx: click.Context, _param: click.Parameter, given: str) -> str:
    token = sys.stdin.readline().strip() if given == _STDIN else given
    if not token:
        raise click.BadParameter("there is no token on stdin")
    return token


_token_argument = click.argument("token", callback=_token)


@answers.verb(
    "give",
    "treadle answers give TOKEN '{\"paid\": true}'",
    "treadle answers give TOKEN 42 --json",
    "echo $TOKEN | treadle answers give -",
)
@_token_argument
@click.argument("result", default="null")
def give(call: Invocation, token: str, result: str) -> None:
    """Answer with a result, as JSON; null if there is none. The job runs again and sees it."""
    value = payload.decode(result, what="RESULT")
    _say(call, "result", lambda app: app.answers.give(token, value))


@answers.verb("fail", "treadle answers fail TOKEN 'card declined'")
@_token_argument
@click.argument("error")
def fail(call: Invocation, token: str, error: str) -> None:
    """Answer with an error. The task meets it as AnswerFailed, and decides."""
    _say(call, "error", lambda app: app.answers.fail(token, error))


@answers.verb("again", "treadle answers again TOKEN 10m")
@_token_argument
@click.argument("after", type=AFTER)
def again(call: Invocation, token: str, after: float) -> None:
    """Not now: the job runs again after so long, and may ask anew."""
    _say(call, "again", lambda app: app.answers.again(token, after))


@answers.verb("beat", "treadle answers beat TOKEN", "treadle answers beat TOKEN --json")
@_token_argument
def beat(call: Invocation, token: str) -> None:
    """Still at it: the wait may last its whole time from now on."""
    until = with_storage(call.config(), lambda app: app.answers.beat(token))
    said = until.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if call.out.as_json:
        call.out.data({"until": said})
    else:
        call.out.line(f"waited for until {said}")


def _say(call: Invocation, kind: str, work: Callable[[App], Awaitable[AnswerOutcome]]) -> None:
    outcome = with_storage(call.config(), work)
    if call.out.as_json:
        call.out.data({"outcome": outcome, "kind": kind})
    else:
        call.out.line("answered" if outcome == "won" else "answered before, with the same words")
