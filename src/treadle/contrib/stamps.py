"""What an integration puts into a job's meta when it is enqueued, and takes out when it runs: headers of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..core import payload
from ..core.job import NewJob

LIMIT: Final = 8 * 1024  # of the headers: baggage may hold anything


def put(job: NewJob, key: str, headers: Mapping[str, str]) -> NewJob:
    """The job with headers in its meta. What is too long is left out: a trace is worth no refused job."""
    if not headers or sum(len(name) + len(value) for name, value in headers.items()) > LIMIT:
        return job
    meta: dict[str, Any] = {} if job.meta is None else payload.decode_trusted(job.meta)
    return msgspec.structs.replace(job, meta=payload.encode({**meta, key: dict(headers)}, what="meta"))


def taken(meta: Mapping[str, Any], key: str) -> dict[str, str]:
    """The headers. The row may hold anything: what is no text is no header."""
    found = meta.get(key)
    if not isinstance(found, dict):
        return {}
    return {str(name): value for name, value in found.items() if isinstance(value, str)}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
