"""Asking before something is changed. The question names the environment, and so must a script in production."""

from __future__ import annotations

import sys

import click

from ..config import Config, masked
from ..core.errors import ConfigError
from .output import Output
from .target import url_of


def confirm(out: Output, config: Config, what: str, *, yes: bool, env: str | None) -> None:
    """Return if it may be done. Not on a terminal nobody can answer: then `--yes` is needed, and with
    `production = true` also the name of the environment, so that no sticky default decides where it happens."""
    if env is not None and env != config.env:
        raise click.UsageError(f'--env {env}: the settings say "{config.env or "no environment"}"; nothing was done')
    if config.production and config.env is None:
        raise ConfigError('production = true needs a name: add env = "…" beside it')
    if yes:
        if config.production and env is None:
            raise click.UsageError(f"this is production: --yes also needs --env {config.env}")
        return
    if not is_attended():
        raise click.UsageError(f"{what}: nobody is here to be asked; add --yes, or look first with --dry-run")
    place = masked(url_of(config))
    named = click.style(config.env, bold=True, fg=_colour(config)) + f" ({place})" if config.env else place
    if not click.confirm(f"{what} in {named}?", err=True):
        out.say("nothing was done")
        raise click.exceptions.Exit(1)


def is_attended() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty()


def _colour(config: Config) -> tuple[int, int, int] | None:
    if config.color is None:
        return None
    red, green, blue = bytes.fromhex(config.color.removeprefix("#"))
    return red, green, blue
