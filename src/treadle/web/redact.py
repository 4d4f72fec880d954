"""Redaction, on the server: what may be a secret leaves no process. By the key, in arguments, results, metadata and
logs; by `key=value` and by passwords in URLs, in texts.

A filter must not become a way around it: whoever asks for jobs by what he may not see is refused.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ..core import filter as filters
from .access import Access
from .problem import Problem

HIDDEN: Final[Mapping[str, bool]] = {"hidden": True}
MASK: Final = "***"
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
_WORDS: Final = r"(?:password|passwd|secret|token|authorization|api[_-]?key|cookie|dsn|credential|private[_-]?key)"
# Every repetition before what is looked for is bounded: a text may come from anybody.
_PAIR: Final = re.compile(
    rf"(?i)({_WORDS}[\w-]{{0,40}}[\"']?\s{{0,8}}[=:]\s{{0,8}})((?:bearer|basic)\s{{1,8}}\S+|\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&]+)"
)
_LOGIN: Final = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://[^\s:/@]{0,200}:)[^\s@/]{1,500}@")
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
        """A JSON value without its secrets."""
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
        if "://" in text:
            text = _LOGIN.sub(rf"\1{MASK}@", text)
        return _PAIR.sub(rf"\1{MASK}", text)

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

    def check_filter(self, text: str, access: Access) -> None:
        """FilterError if it cannot be read; a Problem if it asks by what this user may not see."""
        for term in filters.parse(text).terms:
            path = tuple((term.key or "").split("."))
            if path[0] not in PAYLOADS:
                continue
            if not access.may("payload"):
                raise Problem(
                    "forbidden",
                    f"your role ({access.role}) may not filter by {path[0]}: it may not see it",
                    fields={"action": "payload"},
                )
            if len(path) > 1 and any(self.is_secret(path[1 : n + 1]) for n in range(1, len(path))):
                raise Problem("forbidden", f"{term.key} is redacted: it cannot be filtered by")
