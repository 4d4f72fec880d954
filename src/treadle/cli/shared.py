"""Options that several groups have, and how moments are written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click


def confirming(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--yes` and `--env`, for whatever changes something."""
    function = click.option("--env", metavar="NAME", help="The environment this is meant for; refused in another.")(
        function
    )
    return click.option("--yes", is_flag=True, help="Do not ask.")(function)


def moment(at: datetime | None) -> str:
    """An instant for eyes, to the second, in UTC."""
    return "" if at is None else at.strftime("%Y-%m-%d %H:%M:%SZ")
