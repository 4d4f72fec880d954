"""`treadle tokens`: who may use the dashboard from elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..core.errors import ConfigError
from .command import Invocation, Verbs
from .errors import NotFound
from .params import DURATION

DEFAULT = "~/.treadle/tokens"

tokens = Verbs(
    "tokens",
    help="Tokens of the dashboard: add, list, revoke.",
    examples=("treadle tokens add ann --role operator --expires 90d", "treadle tokens revoke ann"),
)


def _file(call: Invocation, given: str | None) -> Path:
    chosen = given or call.config().web_token_file or DEFAULT
    return Path(chosen).expanduser()


def _where(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--file", "path", metavar="PATH", help=f"Where they are kept. Default {DEFAULT}.")(function)


@tokens.verb("add", "treadle tokens add ann --role operator", "treadle tokens add ci --role admin --expires 30d")
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "viewer+payload", "operator", "admin"]),
    default="viewer",
    show_default=True,
)
@click.option("--expires", type=DURATION, help="After how long it ends: 90d.")
@_where
def add(call: Invocation, name: str, role: str, expires: float | None, path: str | None) -> None:
    """Make a token and print it, this once. Kept is only its hash, in a file that nobody else can read."""
    from ..web import tokens as kept

    where = _file(call, path)
    held = kept.read(where) if where.exists() else ()
    if any(each.name == name for each in held):
        raise ConfigError(f"there is a token {name} already: revoke it first, or choose another name")
    made, token = kept.make(name, role, expires=None if expires is None else time.time() + expires)
    kept.write(where, [*held, made])
    if call.out.as_json:
        call.out.data({"name": name, "role": role, "token": token, "file": str(where)})
    else:
        call.out.line(token)
        call.out.say(f"{name} ({role}) in {where}: it is not shown again")


@tokens.verb("list", "treadle tokens list", "treadle tokens list --json")
@_where
def list_(call: Invocation, path: str | None) -> None:
    """List the tokens' names, roles and ends."""
    from ..web import tokens as kept

    where = _file(call, path)
    rows = [each.line().split() for each in kept.read(where)] if where.exists() else []
    if call.out.as_json:
        for name, role, _, expires in rows:
            call.out.data({"name": name, "role": role, "expires": None if expires == "-" else expires})
    elif rows:
        call.out.table(("name", "role", "expires"), [(name, role, expires) for name, role, _, expires in rows])
    else:
        call.out.say("no tokens: make one with `treadle tokens add NAME`")


@tokens.verb("revoke", "treadle tokens revoke ann")
@click.argument("name")
@_where
def revoke(call: Invocation, name: str, path: str | None) -> None:
    """Take a token away. A dashboard that runs hears of it at once, and ends its sessions."""
    from ..web import tokens as kept

    where = _file(call, path)
    held = kept.read(where) if where.exists() else ()
    left = [each for each in held if each.name != name]
    if len(left) == len(held):
        raise NotFound(f"there is no token {name} in {where}")
    kept.write(where, left)
    if call.out.as_json:
        call.out.data({"name": name, "revoked": True})
    else:
        call.out.line(f"{name}  revoked")
