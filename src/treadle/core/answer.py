"""Answers from outside: a job waits for somebody who is no worker.

Who holds the token may answer, and nobody else: it is random, made in a run, and never stored. A storage knows its id
only, from which the token cannot be found.

A token belongs to one claim. As long as that claim runs, or its job waits, the answer may be given, once: a storage
holds the job's row and the answer's, asks `settle`, and tells each caller what became of its word. An answer that comes
before its job has begun to wait is kept, and the wait ends in the write that would have begun it (`meet`): whichever of
the two comes second finds the other. After a retry the claim is another, and the old token is stale.

An answer ends nothing by itself. The job runs again, the task sees what was said (by a mark in its meta, and a look at
the answer's row), and decides.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from . import payload
from .duration import Duration, seconds
from .errors import PayloadError
from .job import Job, State

Kind = Literal["result", "error", "again", "expired"]
Outcome = Literal["won", "same", "conflict", "stale", "unknown", "early"]

DEFAULT_TIMEOUT: Final = 3600.0
LARGEST_ERROR: Final = 16 * 1024
LARGEST_BODY: Final = payload.LIMIT + 1024  # a result, and the object that it comes in
KEPT: Final = 100  # so many tokens of one job are remembered, to tell what is stale from what was never there
META_ANSWER: Final = "treadle:answer"
_MARK: Final = f'"{META_ANSWER}"'
_UNDER_WAY: Final = frozenset({State.RUNNING, State.WAITING})


class NewAnswer(Struct, frozen=True, kw_only=True):
    """An answer that a run asks for. `keep`: the answer that its job has had, which is not to be forgotten."""

    id: str
    job: str
    claim: str  # the token of the run's claim
    timeout: float = DEFAULT_TIMEOUT
    keep: str | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What a storage keeps of it. Without a `kind` it has not been given."""

    id: str
    job: str
    claim: str
    timeout: float
    opened_at: float
    expires_at: float
    waits: bool = False  # its job waits for it, without a slot
    kind: Kind | None = None
    value: str | None = None  # JSON
    after: float | None = None
    at: float | None = None


class Given(Struct, frozen=True, kw_only=True):
    """What somebody says. `expired` is said by the run that waited in place, and is nobody's answer."""

    kind: Kind
    value: str | None = None
    after: float | None = None


class Settled(Struct, frozen=True):
    """What a storage is to do about a word: write `answer` if there is one, and, if it `releases`, the Change that
    `lifecycle.answered` makes of it."""

    outcome: Outcome
    answer: Answer | None = None
    releases: bool = False


class Mark(Struct, frozen=True):
    """What the job's meta says of the last answer that it got."""

    id: str
    kind: Kind


def id_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


# ---------------------------------------------------------------------------------------------------------------------
# What is said


def result(value: object) -> Given:
    return Given(kind="result", value=payload.encode(value, what="the answer"))


def error(value: object) -> Given:
    """Mostly text; any JSON will do."""
    return Given(kind="error", value=payload.encode(value, what="the error", limit=LARGEST_ERROR))


def again(after: Duration) -> Given:
    return Given(kind="again", after=seconds(after, "after"))


EXPIRED: Final = Given(kind="expired")


def read(body: str | bytes) -> Given:
    """What a request body says: `{"result": …}`, `{"error": …}` or `{"again": "10m"}`; nothing at all is the result
    null. PayloadError, or ValueError for a duration that is none."""
    if not body:
        return result(None)
    said = payload.decode(body, what="the answer", limit=LARGEST_BODY)
    known = {"result": result, "error": error, "again": again}
    if not isinstance(said, dict) or len(cast("dict[str, Any]", said)) != 1 or not said.keys() <= known.keys():
        raise PayloadError('an answer is an object with one of "result", "error" and "again"')
    ((name, value),) = cast("dict[str, Any]", said).items()
    return known[name](value)


def sign(secret: str, token: str, body: bytes) -> str:
    """The signature that is demanded where a secret is set: HMAC-SHA256 over token, a line feed and body, in hex."""
    return hmac.new(secret.encode(), token.encode("utf-8", "replace") + b"\n" + body, hashlib.sha256).hexdigest()


def is_signed(secret: str, token: str, body: bytes, signature: str | None) -> bool:
    """Whether the signature is right, with or without `sha256=` before it."""
    given = (signature or "").strip().removeprefix("sha256=").lower()
    return hmac.compare_digest(sign(secret, token, body).encode(), given.encode("utf-8", "replace"))


# ---------------------------------------------------------------------------------------------------------------------
# The storage's side


def opened(new: NewAnswer, now: float) -> Answer:
    return Answer(
        id=new.id, job=new.job, claim=new.claim, timeout=new.timeout, opened_at=now, expires_at=now + new.timeout
    )


def settle(row: Answer | None, job: Job | None, given: Given, now: float) -> Settled:
    """What becomes of a word, with the rows of the answer and of its job held."""
    if row is None:
        return Settled("unknown")
    if row.kind is not None:
        if (row.kind, row.value, row.after) == (given.kind, given.value, given.after):
            return Settled("same")
        return Settled("stale" if row.kind == "expired" else "conflict")
    if not _is_current(row, job):
        return Settled("stale")
    if given.kind == "expired" and row.expires_at > now:
        return Settled("early")  # somebody has kept it alive meanwhile
    said = msgspec.structs.replace(row, kind=given.kind, value=given.value, after=given.after, at=now, waits=False)
    return Settled("won", said, releases=row.waits)


def keep_alive(row: Answer | None, job: Job | None, now: float) -> Settled:
    """A beat from outside: the wait may last its whole time from now on."""
    if row is None:
        return Settled("unknown")
    if row.kind is not None or not _is_current(row, job):
        return Settled("stale")
    return Settled("won", msgspec.structs.replace(row, expires_at=now + row.timeout))


def _is_current(row: Answer, job: Job | None) -> bool:
    return job is not None and job.token == row.claim and job.state in _UNDER_WAY


def meet(row: Answer | None, job: str, claim: str | None) -> Literal["wait", "answered", "refused"]:
    """What becomes of a run that wants to wait for this answer: it is there already, or it is not, or it is none of
    the run's own."""
    if row is None or (row.job, row.claim) != (job, claim) or row.kind == "expired":
        return "refused"
    return "wait" if row.kind is None else "answered"


def awaits(job: Job, row: Answer) -> bool:
    """Whether the job waits for this answer now, without a slot, and has not got it."""
    return job.state is State.WAITING and row.waits and row.kind is None and (row.job, row.claim) == (job.id, job.token)


def is_over(row: Answer | None, now: float) -> bool:
    """Whether nobody has answered, and it is too late for it."""
    return row is not None and row.kind is None and row.expires_at <= now


# ---------------------------------------------------------------------------------------------------------------------
# The mark in a job's meta


def marked(meta: str | None, answer: Answer) -> str:
    """The meta of a job that got this answer."""
    return payload.encode({**_object(meta), META_ANSWER: {"id": answer.id, "kind": answer.kind}}, what="meta")


def mark_of(meta: str | None) -> Mark | None:
    if meta is None or _MARK not in meta:
        return None
    try:
        return msgspec.convert(_object(meta).get(META_ANSWER), Mark)
    except msgspec.ValidationError:  # a damaged row
        return None


def without_error(meta: str | None) -> str | None:
    """The meta without the mark of an error: an attempt that failed by it has made of it what there was to make. The
    same meta, if it has no such mark."""
    mark = mark_of(meta)
    if mark is None or mark.kind != "error":
        return meta
    rest = {key: value for key, value in _object(meta).items() if key != META_ANSWER}
    return payload.encode(rest, what="meta") if rest else None


def _object(meta: str | None) -> dict[str, Any]:
    try:
        found: object = None if meta is None else payload.decode_trusted(meta)
    except PayloadError:
        found = None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
