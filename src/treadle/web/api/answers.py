"""Outside answers over HTTP, for jobs that wait for one. The token in the path is the credential: random, bound to one
attempt, and so nobody has to log in. With TREADLE_ANSWER_SECRET set, the body must be signed as well.

Whoever has no token that was ever given out sends no body: the token is looked up before anything of it is read."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ...core import answer as answering
from ...operate.answers import unknown_token
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


async def is_known(call: Call[Any, Any]) -> None:
    """Before the body is read: AnswerNotFound for what was never a token, 401 for what was not signed at all."""
    if call.web.whole.config.answer_secret is not None and HEADER not in call.request.headers:
        raise _unsigned()
    id = answering.id_of(call.path["token"])
    _, found = await call.web.reads.client.ask(lambda storage: storage.answer_of(id))
    if found is None:
        raise unknown_token()


@routes.api(
    "POST",
    "/answers/{token}",
    action=PUBLIC,
    body=Answer,
    answer=Given,
    is_credential=True,
    largest=answering.LARGEST_BODY,
    before=is_known,
    problems=(409,),
)
async def give(call: Call[None, Answer]) -> Any:
    """Answer a job that waits: with a result, with an error, or to try again after a while."""
    _check(call)
    return {"outcome": await call.app.answers.say(call.path["token"], answering.read(call.raw))}


@routes.api(
    "POST",
    "/answers/{token}/beat",
    action=PUBLIC,
    answer=Beaten,
    is_credential=True,
    before=is_known,
    problems=(409,),
)
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
        raise _unsigned()


def _unsigned() -> Problem:
    return Problem("unauthorized", f"the answer must be signed in {HEADER}")
