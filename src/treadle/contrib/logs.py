"""Log lines that name their job, in the standard library's logging.

    from treadle.contrib.logs import JobFilter

    handler.addFilter(JobFilter())     # then %(job_id)s, %(task)s, %(queue)s, %(attempt)s and %(slot)s are there

Every record that is made while a task runs, by whatever library, gets the fields of its job; a record made elsewhere
gets None. Arguments are never among them.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from ..context.context import current_job, current_run

FIELDS: Final = ("job_id", "task", "queue", "attempt", "reason", "slot")


def job_fields() -> dict[str, Any]:
    """The fields of the job whose task is running here; empty outside one."""
    job = current_job.get()
    if job is None:
        return {}
    run = current_run.get()
    return {
        "job_id": job.id,
        "task": job.task,
        "queue": job.queue,
        "attempt": job.attempt,
        "reason": job.reason,
        "slot": job.slot if run is None else run.slot_name,
    }


class JobFilter(logging.Filter):
    """Lets everything through, and adds the fields. What a record says itself stays."""

    def filter(self, record: logging.LogRecord) -> bool:
        fields = job_fields()
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, fields.get(name))
        return True
