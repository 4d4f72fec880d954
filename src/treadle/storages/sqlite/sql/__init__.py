"""The statements: one per file, named for its verb. Numbered files are migrations.

`{job}` and `{queue}` in a statement stand for the columns that `rows` makes a Job or a Queue of.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Final

JOB_COLUMNS: Final = (
    "seq, id, task, queue, state, args, format, priority, run_at, created_at, attempt, max_attempts, timeout, pinned, "
    "tags, meta, reason, unique_key, pod, slot, token, started_at, deadline, finished_at, crashes, snoozes, throttles, "
    "cancel_wanted, result, warning, kept, error_count"
)
QUEUE_COLUMNS: Final = (
    "name, version, paused, paused_by, paused_at, pause_reason, paused_until, max_workers, cool_until, cool_exponent, "
    "settings"
)


@functools.cache
def statement(name: str) -> str:
    """The text of one statement."""
    text = resources.files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8").strip()
    return text.replace("{job}", JOB_COLUMNS).replace("{queue}", QUEUE_COLUMNS)


@functools.cache
def migrations() -> tuple[tuple[str, str], ...]:
    """(name, text) of every migration, oldest first."""
    found = sorted(
        (file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in resources.files(__name__).iterdir()
        if file.name[:1].isdigit() and file.name.endswith(".sql")
    )
    return tuple(found)
