"""Outside answers over HTTP, for jobs that wait for one. The token in the path is the credential: random, bound to one
attempt, and so nobody has to log in. With TREADLE_ANSWER_SECRET set, the body must be signed as well."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ...core import answer as answering
from ..problem import Problem
from ..routing import PUBLIC, Call, Routes
from .shapes import DurationText

routes = Routes()

HEADER = "x-treadle-signature"


class Answer(Struct, forbid_unknown_fields=True, kw_only=True):
    """One of the three; nothing at all is the result null."""

    result: Annotated[Any, Meta(description="Any JSON, 1 MiB at most.")] = UNSET
    error: Annotated[Any, Meta(description="Mostly text: the task sees that it failed.")] = UNSET
    again: DurationText | UnsetType = UNSET


class Given(Struct):
    """`same`: it was given before, and nothing new happened."""

    outcome: Literal["won", "same"]


class Beaten(Struct):
    """Until when the wait may last now."""

    until: datetime


@routes.api("POST", "/answers/{token}", action=PUBLIC, body=Answer, answer=Given, is_credential=True, problems=(409,))
async def give(call: Call[None, Answer]) -> Any:
    """Answer a job that waits: with a result, with an error, or to try again after a while."""
    _check(call)
    return {"outcome": await call.app.answers.say(call.path["token"], answering.read(call.raw))}


@routes.api("POST", "/answers/{token}/beat", action=PUBLIC, answer=Beaten, is_credential=True, problems=(409,))
async def beat(call: Call[None, None]) -> Any:
    """Still at it: the wait may last its whole time from now on."""
    _check(call)
    return {"until": await call.app.answers.beat(call.path["token"])}


def _check(call: Call[Any, Any]) -> None:
    secret = call.web.whole.config.answer_secret
    if secret is None:
        return
    signature = call.request.headers.get(HEADER)
    if not answering.is_signed(secret, call.path["token"], call.raw, signature):
        raise Problem("unauthorized", f"the answer must be signed in {HEADER}")
