"""What goes wrong over HTTP: a kind, a status, and words that never hold SQL, a path or a secret.

A handler raises `Problem`, or lets the client's own errors pass: `problem_of` knows them. Whatever it does not know is
`internal`: the words are generic, and the details are in the log under the request's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from ..core import errors
from ..core.text import visible

Kind = Literal[
    "validation",
    "unauthorized",
    "forbidden",
    "not_found",
    "method_not_allowed",
    "too_slow",
    "conflict",
    "too_large",
    "unsupported_media",
    "wrong_host",
    "rate_limited",
    "internal",
    "unsupported",
    "unavailable",
]

STATUS: Final[Mapping[Kind, int]] = {
    "validation": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "too_slow": 408,
    "conflict": 409,
    "too_large": 413,
    "unsupported_media": 415,
    "wrong_host": 421,
    "rate_limited": 429,
    "internal": 500,
    "unsupported": 501,
    "unavailable": 503,
}
CODES: Final[Mapping[Kind, str]] = {kind: f"TREADLE-H{status}" for kind, status in STATUS.items()}

INTERNAL: Final = "something went wrong here; the log says what, under the request's id"
TOO_LONG: Final = "this took longer than a read may take: narrow it"
AWAY: Final = "the storage cannot be reached just now; try again"
READ_ONLY: Final = "this dashboard is for reading only: nothing can be changed from here"
TRY_AGAIN: Final = 5  # seconds


class Problem(Exception):
    """`fields` says more to programs: which field is wrong, which state is true now."""

    def __init__(
        self, kind: Kind, message: str, *, fields: Mapping[str, Any] | None = None, headers: Mapping[str, str] = {}
    ) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = visible(message)  # shown on pages, in terminals (curl) and in the log
        self.fields = dict(fields or {})
        self.headers = dict(headers)
        if kind in ("rate_limited", "unavailable"):
            self.headers.setdefault("Retry-After", str(TRY_AGAIN))

    @property
    def status(self) -> int:
        return STATUS[self.kind]

    def as_json(self, request_id: str) -> dict[str, Any]:
        told = {"kind": self.kind, "message": self.message, "code": CODES[self.kind], "fields": self.fields}
        return {"error": {**told, "request_id": request_id}}


def away() -> Problem:
    """`fields.storage` tells a page what its live mark says."""
    return Problem("unavailable", AWAY, fields={"storage": "away"})


def locked(said: str) -> Problem:
    """The storage answers, and somebody's lock keeps our calls waiting: `said` names the holder."""
    return Problem("unavailable", said, fields={"storage": "locked"})


def problem_of(error: Exception) -> Problem:
    """The Problem that an error of the client is."""
    match error:
        case Problem():
            return error
        case errors.PayloadTooLarge():
            return Problem("too_large", str(error), fields={"path": error.path})
        case errors.PayloadError():
            return Problem("validation", str(error), fields={"path": error.path})
        case errors.FilterError():
            return Problem("validation", str(error), fields={"column": error.column})
        case (
            errors.JobNotFound()
            | errors.OperationNotFound()
            | errors.ScheduleNotFound()
            | errors.PodNotFound()
            | errors.UnknownLimit()
            | errors.AnswerNotFound()
            | errors.UnknownTask()
        ):
            return Problem("not_found", str(error))
        case errors.Conflict() | errors.LockHeld() | errors.LockLost() | errors.AnswerStale():
            return Problem("conflict", str(error))
        case errors.RateLimited():
            return Problem("rate_limited", str(error), headers={"Retry-After": str(max(1, round(error.wait)))})
        case errors.ResultTimeout():
            return Problem("unavailable", str(error))
        case errors.ReadOnly():
            return Problem("forbidden", READ_ONLY)
        case errors.StorageDenied():
            return Problem("forbidden", str(error))
        case errors.StorageUnavailable() | errors.SchemaTooOld() | errors.SchemaTooNew():
            return away()
        case ValueError() | TypeError() if is_ours(error):
            return Problem("validation", str(error))
        case _:
            return Problem("internal", INTERNAL)


def is_ours(error: Exception) -> bool:
    """Whether our own checks raised it, so that its words are meant for whoever asked."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    module = "" if place is None else str(place.tb_frame.f_globals.get("__name__", ""))
    return module.startswith(_CHECKED)


# Packages whose ValueErrors and TypeErrors are checks of what a caller gave.
_CHECKED: Final = tuple(f"treadle.{each}." for each in ("core", "operate", "context", "tasks", "client", "web"))
