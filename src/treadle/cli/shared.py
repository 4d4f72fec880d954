"""Options that several groups have, and how moments are written."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..core.warnings import ClusterWarning
    from .command import Invocation


def confirming(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--yes` and `--env`, for whatever changes something."""
    function = click.option("--env", metavar="NAME", help="The environment this is meant for; refused in another.")(
        function
    )
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


def moment(at: datetime | None) -> str:
    """An instant for eyes, to the second, in UTC."""
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M:%SZ")


def warn(call: Invocation, found: Iterable[ClusterWarning]) -> None:
    """Beside the data, for eyes: what is wrong in the cluster."""
    for each in found:
        call.out.say(f"{call.out.paint('!', 'yellow')} {each.text}; {each.remedy}")


def operator() -> str:
    """Who asks, for timelines and the audit: the user's name on this machine."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return f"uid {os.getuid()}"


def many(number: int) -> str:
    return f"{number:,} job{'' if number == 1 else 's'}"
