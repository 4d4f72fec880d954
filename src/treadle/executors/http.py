"""Services: the work is done by whoever answers a POST, now or later.

The name is resolved once, every address is looked at, and the connection goes to one that was looked at: there is no
moment in which a name can change its mind. What an answer means is decided by its status alone:

=======================  =====================================================================
2xx                      done; the body is the result
202, if `answers` is set the job waits, and the service answers later by the token that it got
429                      Throttle, with the service's Retry-After
503 with Retry-After     RetryAfter
408, 425, 5xx, network   a failed attempt, retried by the task's own policy
3xx, other 4xx           Fail
=======================  =====================================================================
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from email.utils import parsedate_to_datetime
from typing import Any, Final

from ..core import payload
from ..core.address_ranges import why_not_public
from ..core.errors import ConfigError, PayloadError
from ..core.job import ErrorEntry, Job
from ..core.outcome import Brought, Elsewhere, Fail, RetryAfter, Throttle, Wait
from ..ports import Call
from ..signing import sign
from ..tasks.external.http import Hook, Target, may_ask
from ..trace import mask
from .http_client import BadResponse, Line, Response

log = logging.getLogger("treadle.http")

CONNECT: Final = 10.0
LONGEST_WAIT: Final = 86_400.0
SHOWN: Final = 1024
AGENT: Final = "treadle"

Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as the system has them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class HttpExecutor:
    name = "http"
    cancels = True
    asks = True

    def __init__(
        self,
        hooks: Iterable[Hook],
        find: Callable[[str], Hook | None],
        *,
        resolve: Resolve = resolve,
        now: Callable[[], float] = lambda: time.time(),
    ) -> None:
        self._hooks = list(hooks)
        self._find = find
        self._resolve = resolve
        self._now = now
        self._tls: dict[str | None, ssl.SSLContext] = {}

    def places(self) -> int | None:
        return None

    async def start(self) -> None:
        for hook in self._hooks:
            hook.secret_from(os.environ)
            try:
                await asyncio.to_thread(self._context, hook.ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"task {hook.task}: ca {hook.ca} cannot be read: {error}") from None

    async def run(self, call: Call) -> Any:
        job, context = call.job, call.context
        hook = None if job is None else self._find(job.task)
        if job is None or hook is None:
            raise Fail("this worker knows no such service")
        token: str | None = None
        if hook.answers is not None and context is not None:
            if context.has_answer:
                return await context.answer()
            token = await context.answer_token(hook.answers)
        try:
            arguments = payload.decode_trusted(job.args)
            target = hook.target(arguments)
        except PayloadError as error:  # it was enqueued by name, or its declaration has changed
            raise Fail(str(error)) from None
        response = await self._ask(hook, target, _body(hook, job, context, arguments, token), job)
        if response.status == 202 and token is not None:
            raise Wait(token)
        if not response.is_whole and context is not None:
            context.log.warning("the answer was longer than %s bytes, and is not kept", f"{hook.response:,}")
        return verdict(response, job, self._now())

    async def close(self) -> None:
        self._tls.clear()

    async def _ask(self, hook: Hook, target: Target, body: bytes, job: Job) -> Response:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": AGENT}
        headers |= {"Idempotency-Key": job.id} | hook.headers
        if (secret := hook.secret_from(os.environ)) is not None:
            headers |= sign(body, secret, token=job.token or "", at=self._now())
        line = await self._connect(hook, target, job)
        try:
            return await line.post(target.authority, target.path, headers, body, hook.response)
        except (OSError, BadResponse) as error:  # no second try here: it was asked, and may be at work
            raise _retried(job, target, error) from None
        finally:
            line.close()

    async def _connect(self, hook: Hook, target: Target, job: Job) -> Line:
        tls = self._context(hook.ca) if target.scheme == "https" else None
        error: Exception = BadResponse("no address")
        for address in await self._addresses(hook, target, job):
            try:
                return await Line.open(address, target.port, tls=tls, name=target.host, patience=CONNECT)
            except OSError as caught:
                error = caught
        raise _retried(job, target, error)

    async def _addresses(self, hook: Hook, target: Target, job: Job) -> list[str]:
        try:
            found = await self._resolve(target.host, target.port)
        except OSError as error:
            raise _retried(job, target, error) from None
        allowed = [address for address in found if may_ask(address, hook.private)]
        if not allowed:
            places = ", ".join(f"{each} ({why_not_public(each)})" for each in found) or "no address"
            raise Fail(f"{target.host} is at {places}, which may not be asked (private=)")
        return allowed

    def _context(self, ca: str | None) -> ssl.SSLContext:
        if ca not in self._tls:
            self._tls[ca] = ssl.create_default_context(cafile=ca)
        return self._tls[ca]


def verdict(response: Response, job: Job, now: float) -> Any:
    """What an answer means: the result, or an exception."""
    status = response.status
    if 200 <= status < 300:
        return _result(response)
    after = retry_after(response.headers.get("retry-after"), now)
    words = _words(response)
    if status == 429:
        raise Throttle(after)
    if status == 503 and after is not None:
        raise RetryAfter(after, words)
    if status in (408, 425) or status >= 500:
        raise Elsewhere(_entry(job, "HTTPStatus", words))
    if 300 <= status < 400:
        raise Fail(f"{words} (redirects are not followed)")
    raise Fail(words)


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds: of a number, or of a date. None if it says neither."""
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return min(LONGEST_WAIT, float(value[:12]))
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    return min(LONGEST_WAIT, max(0.0, at.timestamp() - now))


def _body(hook: Hook, job: Job, context: Any, arguments: dict[str, Any], token: str | None) -> bytes:
    told: dict[str, Any] = {
        "task": hook.task,
        "args": hook.stub.complete(arguments),
        "job": job.id,
        "attempt": job.attempt,
        "queue": job.queue,
    }
    if context is not None:
        told["max_attempts"] = context.max_attempts
    if token is not None:
        told["answer_token"] = token
        if hook.answer_url is not None:
            told["answer_url"] = hook.answer_url.fill({"token": token})
    return payload.encode(told, what="the request", limit=2 * payload.LIMIT).encode()


def _result(response: Response) -> Any:
    if not response.is_whole:
        return Brought(None, f"{payload.NOT_KEPT}the response is larger than response= allows")
    if not response.body.strip():
        return None
    try:
        return payload.decode(response.body, what="result")
    except PayloadError:
        return response.body.decode("utf-8", "replace").replace("\x00", "\ufffd")


def _words(response: Response) -> str:
    text = response.body[: 4 * SHOWN].decode("utf-8", "replace").replace("\x00", "\ufffd")
    said = " ".join(text.split())[:SHOWN]
    return mask(f"status {response.status}: {said}" if said else f"status {response.status}")


def _retried(job: Job, target: Target, error: Exception) -> Elsewhere:
    words = f"{target.scheme}://{target.authority}: {str(error) or type(error).__name__}"
    return Elsewhere(_entry(job, type(error).__name__, mask(words)), _types(error))


def _types(error: BaseException) -> tuple[str, ...]:
    return tuple(f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__[:-1])


def _entry(job: Job, kind: str, message: str) -> ErrorEntry:
    return ErrorEntry(
        attempt=job.attempt, kind="error", type=kind, message=message[:2048], pod=job.pod, started_at=job.started_at
    )
