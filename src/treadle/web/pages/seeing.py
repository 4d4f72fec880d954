"""What this user may see of a job: secrets are masked and payloads hidden here, before a template has the value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...core.progress import ProgressView
from ...core.view import ErrorView, JobView
from ..routing import Call


def job(call: Call[Any, Any], found: JobView) -> JobView:
    redact = call.web.redact
    return replace(
        found,
        args=redact.payload(found.args, call.access),
        result=redact.payload(found.result, call.access),
        meta=redact.payload(found.meta, call.access),
        progress=None if found.progress is None else _progress(call, found.progress),
        reason=_text(call, found.reason),
        warning=_text(call, found.warning),
        unique_key=_text(call, found.unique_key),
        error=None if found.error is None else _error(call, found.error),
        errors=tuple(_error(call, each) for each in found.errors),
    )


def _error(call: Call[Any, Any], found: ErrorView) -> ErrorView:
    redact = call.web.redact
    return replace(found, message=redact.text(found.message), trace=redact.text(found.trace))


def _progress(call: Call[Any, Any], found: ProgressView) -> ProgressView:
    redact = call.web.redact
    return replace(found, note=redact.text(found.note), data=redact.payload(found.data, call.access))


def _text(call: Call[Any, Any], text: str | None) -> str | None:
    return None if text is None else call.web.redact.text(text)
