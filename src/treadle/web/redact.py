"""Redaction, on the server: what may be a secret leaves no process. By the key, in arguments, results, metadata and
logs; by `key=value` and by passwords in URLs, in texts.

A filter must not become a way around it: what a role may not see, it may not match (`core.filter_sight`). So every
route that takes a filter asks with what `allowed_filter` gives it, and with nothing else.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from ..core import filter as filters
from ..core import filter_sight, redact
from ..core.errors import FilterError
from ..core.records import AuditView, OperationView
from ..core.redact import MASK
from .access import Access
from .problem import Problem

HIDDEN: Final[Mapping[str, bool]] = {"hidden": True}
BUILT_IN: Final = (
    "password",
    "passwd",
    "secret",
    "token",
    "authorization",
    "apikey",
    "cookie",
    "dsn",
    "credential",
    "privatekey",
)
PAYLOADS: Final = ("args", "result", "meta")  # of a job; those of a schedule are `args`
_DEPTH: Final = 120
_MOST_JUDGED: Final = 1_000


class Redaction:
    def __init__(self, patterns: Iterable[str] = ()) -> None:
        """`patterns` are keys ("iban"), or dotted places from the right ("*.secret", "card.number"); * is anything."""
        self.patterns = tuple(pattern.lower() for pattern in patterns)
        self._judged: dict[tuple[str, ...], bool] = {}  # the jobs of a page have the same few keys

    def is_secret(self, path: tuple[str, ...]) -> bool:
        """Whether what is kept under this key, at this place, may not be shown."""
        known = self._judged.get(path)
        if known is None:
            if len(self._judged) >= _MOST_JUDGED:
                self._judged.clear()
            known = self._judged[path] = self._judge(path)
        return known

    def _judge(self, path: tuple[str, ...]) -> bool:
        key = path[-1].lower()
        if any(word in key.replace("_", "").replace("-", "") for word in BUILT_IN):
            return True
        dotted = ".".join(path).lower()
        return any(
            fnmatch.fnmatchcase(key, each)
            or fnmatch.fnmatchcase(dotted, each)
            or fnmatch.fnmatchcase(dotted, f"*.{each}")
            for each in self.patterns
        )

    def value(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """A JSON value without its secrets. The positions of lists are no part of a path."""
        if len(path) > _DEPTH:
            return MASK
        match value:
            case str():
                return self.text(value)
            case Mapping():
                found = cast("Mapping[str, Any]", value)
                return {
                    key: MASK if each is not None and self.is_secret((*path, key)) else self.value(each, (*path, key))
                    for key, each in found.items()
                }
            case list() | tuple():
                return [self.value(each, path) for each in cast("list[Any]", value)]
            case _:
                return value

    def text(self, text: str) -> str:
        """A text without what looks like a secret."""
        return redact.text(text)

    def job(self, job: dict[str, Any], access: Access) -> dict[str, Any]:
        """A job as this user may see it: of plain JSON values, as `plain` makes them."""
        seen = dict(job)
        for name in PAYLOADS:
            seen[name] = self.payload(job.get(name), access)
        if isinstance(job.get("progress"), dict):
            seen["progress"] = self.progress(job["progress"], access)
        for name in ("reason", "warning", "unique_key"):
            if isinstance(job.get(name), str):
                seen[name] = self.text(job[name])
        if isinstance(job.get("error"), dict):
            seen["error"] = self.error(job["error"])
        if isinstance(job.get("errors"), list):
            seen["errors"] = [self.error(each) for each in job["errors"]]
        return seen

    def payload(self, value: Any, access: Access) -> Any:
        """Arguments, results, metadata."""
        if value is None or value == {}:
            return value
        return self.value(value) if access.may("payload") else dict(HIDDEN)

    def progress(self, progress: dict[str, Any], access: Access) -> dict[str, Any]:
        seen = {name: self.value(value) for name, value in progress.items()}
        if "data" in seen:
            seen["data"] = self.payload(progress["data"], access)
        return seen

    def error(self, error: dict[str, Any]) -> dict[str, Any]:
        return {name: self.text(each) if name in ("message", "trace") else each for name, each in error.items()}

    # Filters ---------------------------------------------------------------------------------------------------------

    def allowed_filter(self, text: str, access: Access) -> str:
        """The filter that this user may ask with: one that compares what is shown. FilterError if it cannot be read; a
        Problem if it asks by what this user may not see."""
        judged = filter_sight.judge(filters.parse(text), payload=access.may("payload"), is_secret=self.is_secret)
        if not isinstance(judged, filter_sight.Refused):
            return str(judged)
        key = judged.key
        match judged.why:
            case "hidden":
                raise Problem(
                    "forbidden",
                    f"your role ({access.role}) may not filter by {key}: it may not see it",
                    fields={"action": "payload", "term": key},
                )
            case "masked":
                raise Problem(
                    "forbidden", f"{key[:200]} is redacted: it cannot be filtered by", fields={"term": key[:200]}
                )
            case _:
                raise Problem("validation", f"{key[:200]} is too deep to filter by", fields={"term": key[:200]})

    def shown_filter(self, text: str, access: Access) -> str:
        """A filter that somebody else has used, as this user may read it."""
        try:
            which = filters.parse(text)
        except FilterError:
            return self.text(text)
        return str(filter_sight.shown(which, payload=access.may("payload"), is_secret=self.is_secret))

    def operation(self, found: OperationView, access: Access) -> OperationView:
        """An operation as this user may see it."""
        return replace(
            found,
            filter=self.shown_filter(found.filter, access),
            reason=None if found.reason is None else self.text(found.reason),
            error=None if found.error is None else self.text(found.error),
        )

    def audit_line(self, line: AuditView, access: Access) -> AuditView:
        """A line of the audit as this user may see it. The subject of an operation's line is its filter."""
        is_filter = line.operation is not None and line.act.startswith("jobs.")
        return replace(
            line,
            subject=self.shown_filter(line.subject, access) if is_filter else self.text(line.subject),
            reason=None if line.reason is None else self.text(line.reason),
            detail=self.text(line.detail),
        )
