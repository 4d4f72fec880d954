"""Log lines that name their job, in structlog.

    from treadle.contrib.structlog import add_job

    structlog.configure(processors=[add_job, structlog.processors.JSONRenderer()])

Lines written while a task runs get job_id, task, queue, attempt and slot. It imports nothing of structlog: a processor
is a function.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from .logs import job_fields


def add_job(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in job_fields().items():
        if value is not None:
            event.setdefault(name, value)
    return event
