"""Who may do what, and the Gate that every request passes first.

Roles are sets of actions; a route names the one action that it needs (`routing`). How it is used:

    Dashboard(app, access=lambda request: Access("ann", "operator"))       # a role
    Dashboard(app, access=lambda request: Access("bob", {"see", "pause"})) # or single actions
    Dashboard(app, access="open")                                          # everybody is admin; must be written out

The function may be async; None means: not logged in (401). In a handler it is `call.access`: `call.access.may("pause")`
decides whether a button is shown, and the server checks again when it is pressed.

The Gate refuses, in this order: an unknown Host (421), an unsafe method without proof of the same origin (403), who is
not known (401), a mutation where all is read-only (403). What is left is denied too, unless a route is declared for it
and its action is among the caller's. It puts the request's id, the route, the path's parts and the Access into
`scope["state"]`, and the security headers on every answer.

It reads nothing of a body. What is left of one when the answer begins is settled here too: see `web.body`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import __version__
from ..client.client import new_id
from ..core.errors import ConfigError
from .body import Intake
from .problem import READ_ONLY, Problem

if TYPE_CHECKING:
    from .routing import Table

log = logging.getLogger("treadle.web")

Action = Literal[
    "see",  # everything but arguments, results, metadata and logs
    "payload",  # those
    "revive",
    "cancel",
    "reschedule",
    "priority",
    "move",
    "answer",  # jobs that wait for an answer from outside
    "pause",  # queues and schedules
    "resume",  # and the end of a cool-down
    "quiet",  # pods
    "stacks",
    "operate",  # stop and resume operations
    "mute",  # causes of failures
    "enqueue",
    "fire",  # schedules
    "set_queue",
    "set_schedule",
    "set_limit",
    "free_lock",
    "delete",
    "prune",
    "stop",  # pods
]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

_PAYLOAD: Final[tuple[Action, ...]] = ("see", "payload")
_OPERATOR: Final[tuple[Action, ...]] = (
    *_PAYLOAD, "revive", "cancel", "reschedule", "priority", "move", "answer", "pause", "resume", "quiet", "stacks",
    "operate", "mute",
)  # fmt: skip
ROLES: Final[Mapping[str, frozenset[Action]]] = {
    "viewer": frozenset[Action](("see",)),
    "viewer+payload": frozenset(_PAYLOAD),
    "operator": frozenset(_OPERATOR),
    # Enqueue is here: it is running code by configuration.
    "admin": frozenset(ACTIONS),
}

SAFE: Final = frozenset({"GET", "HEAD"})
LARGEST_HEAD: Final = 16 * 1024
LONGEST_CHECK: Final = 5.0  # for finding out again who has a stream open
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Treadle-Version": __version__,
}


class Access:
    """A person or a program, and what it may do."""

    __slots__ = ("actions", "role", "user")

    def __init__(self, user: str, allowed: str | Iterable[str]) -> None:
        """`allowed` is a role, or a set of actions."""
        if isinstance(allowed, str):
            if allowed not in ROLES:
                raise ConfigError(f"there is no role {allowed!r}: one of {', '.join(ROLES)}, or a set of actions")
            self.actions = ROLES[allowed]
            self.role = allowed
        else:
            self.actions = _checked(allowed)
            self.role = next((name for name, held in ROLES.items() if held == self.actions), "custom")
        self.user = user

    def __repr__(self) -> str:
        return f"Access({self.user!r}, {self.role!r})"

    def may(self, action: Action) -> bool:
        return action in self.actions


def _checked(actions: Iterable[str]) -> frozenset[Action]:
    given = set(actions)
    if unknown := sorted(given.difference(ACTIONS)):
        raise ConfigError(f"there is no action {unknown[0]!r}: {', '.join(ACTIONS)}")
    return frozenset([each for each in ACTIONS if each in given])


NOBODY: Final = Access("nobody", ())
Authenticate = Callable[[Request], Access | Awaitable[Access | None] | None]


def everybody(request: Request) -> Access:
    """`access="open"`."""
    return Access("anybody", "admin")


# ---------------------------------------------------------------------------------------------------------------------
# Where a request comes from


def host_of(value: str) -> str:
    """The name in a Host header, without its port.

    >>> host_of("[::1]:8181")
    '[::1]'
    """
    host = value.strip().lower()
    head, colon, port = host.rpartition(":")
    return (head if colon and port.isdigit() and head else host).rstrip(".")


def is_same_origin(headers: Headers, scheme: str) -> bool:
    """Proof that no other site's page sent it: a bearer token, which a page cannot send unasked; or what the browser
    says of its own accord."""
    if headers.get("authorization", "").lower().startswith("bearer "):
        return True
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    return is_own(headers.get("origin"), headers, scheme)


def is_own(origin: str | None, headers: Headers, scheme: str) -> bool:
    """Whether an Origin is that of this server."""
    if not origin:
        return False
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.netloc.lower() == headers.get("host", "").lower() and parts.scheme in (scheme, "https")


# ---------------------------------------------------------------------------------------------------------------------
# The Gate


class Gate:
    """The outermost: an ASGI middleware around everything that the dashboard serves."""

    def __init__(
        self,
        inner: ASGIApp,
        *,
        table: Table,
        authenticate: Authenticate,
        hosts: Iterable[str] | None,
        refuse: Callable[[Request, Problem], Awaitable[Callable[[Scope, Receive, Send], Awaitable[None]]]],
        read_only: Callable[[], Awaitable[bool]],
    ) -> None:
        """`hosts`: names that it answers to, None for any. `refuse` makes the answer of a Problem."""
        self._inner = inner
        self._table = table
        self._authenticate = authenticate
        self._hosts = None if hosts is None else frozenset(map(host_of, hosts))
        self._refuse = refuse
        self._read_only = read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = new_id()
        state["access"] = NOBODY
        found = self._table.find(scope["method"], route_path(scope))
        state["route"], state["path"], state["allow"] = found.route, found.parts, found.allow

        intake = Intake(scope, receive)

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "connection" in headers or await intake.must_close():
                    headers["Connection"] = "close"
                if not intake.is_h1:  # HTTP/2 has no such header, and no such need
                    del headers["Connection"]
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                headers["X-Request-Id"] = state["request_id"]
            await send(message)

        request = Request(scope, intake.receive)
        try:
            await self._check(request)
        except Problem as problem:
            answer = await self._refuse(request, problem)
            await answer(scope, intake.receive, sealed)
            return
        await self._inner(scope, intake.receive, sealed)

    async def is_still(self, request: Request, access: Access) -> bool:
        """Whether whoever opened a stream would get the same rights now. Ask again fails closed: the page opens its
        stream anew, and is told why if it may not."""
        try:
            async with asyncio.timeout(LONGEST_CHECK):
                now = await self._identify(request)
        except Exception as error:
            log.debug("a stream of %s ends: who asks cannot be found out again: %s", access.user, error)
            return False
        return now is not None and (now.user, now.actions) == (access.user, access.actions)

    async def _identify(self, request: Request) -> Access | None:
        access = self._authenticate(request)
        if inspect.isawaitable(access):
            access = await access
        return access if isinstance(access, Access) else None  # failure is closed

    async def _check(self, request: Request) -> None:
        headers, route = request.headers, request.scope["state"]["route"]
        if sum(len(name) + len(value) for name, value in headers.raw) > LARGEST_HEAD:
            raise Problem("too_large", f"the headers are larger than {LARGEST_HEAD:,} bytes")
        if self._hosts is not None and host_of(headers.get("host", "")) not in self._hosts:
            raise Problem("wrong_host", "this host name is not served here: name it with hosts=, or --allow-host")
        is_unsafe = request.method not in SAFE
        if route is not None and route.is_public and route.is_credential:  # what the path holds is the proof
            if await self._read_only():
                raise Problem("forbidden", READ_ONLY)
            return
        if is_unsafe and not is_same_origin(headers, request.url.scheme):
            raise Problem(
                "forbidden",
                "it may come from another site's page: send an Authorization: Bearer header, or this server's Origin",
            )
        is_foreign = "origin" in headers and not is_own(headers["origin"], headers, request.url.scheme)
        if route is not None and route.is_stream and is_foreign:
            raise Problem("forbidden", "streams are for pages of this server")
        if route is not None and route.is_public:
            return
        access = await self._identify(request)
        if access is None:
            asked = getattr(self._authenticate, "challenge", 'Bearer realm="treadle"')
            raise Problem("unauthorized", "log in first", headers={"WWW-Authenticate": asked})
        request.scope["state"]["access"] = access
        # Asked for reads, too: a page shows no button for what cannot be done.
        passes = route is not None and (route.only_reads or route.in_memory)
        if await self._read_only() and is_unsafe and not passes:
            raise Problem("forbidden", READ_ONLY)
        if route is not None and route.action is not None and not access.may(route.action):
            raise Problem("forbidden", f"your role ({access.role}) may not do this", fields={"action": route.action})


def route_path(scope: Scope) -> str:
    """The path below the mount point."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        return path[len(root) :] or "/"
    return path
