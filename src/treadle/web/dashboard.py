"""Dashboard: the ASGI app. Everything that is served is served by it, below any mount prefix.

    api.mount("/jobs", Dashboard(app, access=who))     # Starlette, FastAPI, Litestar; in Django's asgi.py by path
    api.mount("/jobs", app.dashboard(access="open"))   # the same

It has no start of its own: the app is opened when it is first asked. `close` ends the streams; `treadle web` calls it
at a stop, and whoever mounts it may call it in a lifespan.

For pages: `web.app` is the whole app, `web.reads` the same app without the power to write (what `call.app` is in a
GET), `web.redact`, `web.env`, `web.color`, `web.is_read_only`, `web.counts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from ..core import log_path
from ..core.address import group_of
from ..core.errors import ConfigError, StorageTimeout
from ..core.outcome_log import Line
from ..core.share import Shares
from ..core.text import visible
from ..runtime.line_throttle import LineThrottle
from ..runtime.services.surveyor import Survey, Surveyor
from . import body as bodies
from . import request_cache, storage_views
from .access import LOOPBACK, NOBODY, SAFE, Access, Authenticate, Gate, everybody
from .blocking import Blocking
from .plain import JSON, plain
from .problem import INTERNAL, TOO_LONG, Problem, away, locked, problem_of
from .routing import BASE, Call, Route, Table, decode_form, decode_json, decode_query, url_of
from .storage_health import StorageHealth
from .tables import api_routes, page_routes
from .writability import Writability

if TYPE_CHECKING:
    from ..app import App

log = logging.getLogger("treadle.web")

SLOWEST: Final = 5.0  # what a read may take
WATCH: Final = 5.0
TOLD: Final = (401, 403, 408, 413, 421, 429)  # refusals that are in the log, ten of a kind a minute
Refusal = Callable[[Request, Problem], "Awaitable[Response]"]


class Dashboard:
    def __init__(
        self,
        app: App,
        *,
        access: Authenticate | Literal["open"] | None = None,
        redact: Iterable[str] = (),
        read_only: bool = False,
        env: str | None = None,
        color: str | None = None,
        hosts: Iterable[str] | Literal["any"] = (),
        pages: bool = True,
    ) -> None:
        """`access` says who asks, and what he may: see `web.access`. `hosts` are the names it answers to, beside
        loopback. `redact` are patterns of keys whose values nobody sees, beside the built-in ones. Without `pages` it
        is the HTTP API alone."""
        if access is None:
            raise ConfigError(
                "a dashboard needs access=: a function of the request that answers with Access(user, role), or with "
                'None for whoever is not logged in; access="open" lets everybody do everything'
            )
        if isinstance(access, str) and access != "open":
            raise ConfigError(f'access must be a function, or "open", not {access!r}')
        from .attending import Attending
        from .counts import Counts
        from .redact import Redaction
        from .stream import Hub

        self.pulse = StorageHealth()
        self.app = app.through(lambda storage: storage_views.signed(self.pulse.felt(storage)), declares=True)
        self.reads = app.through(lambda storage: request_cache.once(storage_views.read_only(self.pulse.felt(storage))))
        self.whole = app  # with its registry of tasks
        self.standing = Writability(self.reads, chosen=read_only)
        self.env = env if env is not None else app.config.env
        self.color = color if color is not None else app.config.color
        self.redact = Redaction(redact)
        self.counts = Counts(self.reads)
        self.hub = Hub(self.reads)
        self.attending = Attending(self)
        self._blocking = Blocking(app)
        self.started = time.monotonic()
        self.health: Any = None  # of the pod in the same process, if there is one
        self.extra: tuple[Route, ...] = tuple(getattr(access, "routes", ()))
        self._is_open = isinstance(access, str)
        self.authenticate: Authenticate = everybody if isinstance(access, str) else access
        self.table = Table([*api_routes(), *(page_routes() if pages else ()), *self.extra])
        has_login = any(route.path == "/login" for route in self.extra)
        self.login: str | None = "/login" if has_login else None  # the path of a form that logs in, where there is one
        self._problem_page = _problem_page() if pages else None
        self._refused = LineThrottle(log)
        self._anonymous = Shares(bodies.HELD_ANONYMOUS)
        self._known = Shares(bodies.HELD_KNOWN)
        self._attended: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._gate = Gate(
            self._dispatch,
            table=self.table,
            authenticate=self.authenticate,
            hosts=None if hosts == "any" else (*LOOPBACK, *hosts),
            refuse=self.refuse,
            read_only=self._is_read_only,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._gate(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    @property
    def is_read_only(self) -> bool:
        """As it was chosen, or as the storage found itself to be: see `web.standing`."""
        return self.standing.is_read_only

    async def _is_read_only(self) -> bool:
        await self.standing.keep_up()
        return self.is_read_only

    async def close(self) -> None:
        """End the streams, and leave operations that are worked off here to others."""
        self.standing.close()
        self.attending.close()
        self._refused.close()
        await self.hub.close()
        for task in (*self._attended, *([] if self._watching is None else [self._watching])):
            task.cancel()

    async def _watch(self) -> None:
        """So that `/readyz` knows of a storage that nobody asks, and pages of one that can only be read."""
        while True:
            await self.standing.look()
            await asyncio.sleep(WATCH)

    def caller(self, request: Request, access: Access) -> str:
        """Who is counted where one caller may take a share only: a user, or an address where nobody logs in."""
        if self._is_open or access is NOBODY:
            return f"address {group_of(request.client.host if request.client else '')}"
        return f"user {access.user}"

    async def is_still(self, request: Request, access: Access) -> bool:
        """Whether whoever opened a stream has the same rights now: see `Gate.is_still`."""
        return await self._gate.is_still(request, access)

    async def survey(self) -> Survey:
        """What `/metrics` shows of the cluster."""
        surveyor = Surveyor(self.reads.storage)
        await self.reads.open()
        await surveyor.run_once()
        assert surveyor.survey is not None
        return surveyor.survey

    async def attend(self, operation_id: str) -> None:
        """Work off an operation here, if there is no pod that could."""
        if any(pod.live and pod.can_lead for pod in await self.reads.pods.list()):
            return
        task = asyncio.ensure_future(self.app.operations.run(operation_id))
        self._attended.add(task)
        task.add_done_callback(self._attended.discard)
        task.add_done_callback(_tell_of)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._watching = asyncio.ensure_future(self._watch())
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # A request that has passed the gate ------------------------------------------------------------------------------

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        state = scope["state"]
        access: Access = state["access"]
        token = storage_views.signature.set(f"{access.role}, request {state['request_id']}")
        try:
            answer = await self._answer(request, state["route"])
        except Exception as error:
            answer = await self.refuse(request, error)
        finally:
            storage_views.signature.reset(token)
        if cookie := state.get("cookie"):  # from whoever has authenticated the caller
            answer.set_cookie(**cookie)
        await answer(scope, receive, send)

    async def _answer(self, request: Request, route: Route | None) -> Response:
        state = request.scope["state"]
        if route is None:
            if state["allow"]:
                allow = ", ".join(state["allow"])
                raise Problem("method_not_allowed", f"only {allow}", headers={"Allow": allow})
            raise Problem("not_found", "there is nothing here")
        is_api = route.kind == "api"
        query = decode_query(route.query, request.query_params.multi_items(), strict=is_api)
        reads = route.is_safe or route.only_reads
        call: Call[Any, Any] = Call(
            web=self,
            app=self.reads if reads else self.app,
            request=request,
            access=state["access"],
            path=state["path"],
            query=query,
            body=None,
        )
        if route.is_safe:
            return await self._ask(call, route)
        if route.before is not None:
            await route.before(call)
        shares = self._anonymous if call.access is NOBODY else self._known
        held = bodies.Held(shares, self.caller(request, call.access))
        try:
            call.raw = await bodies.read(request, bodies.JSON if is_api else bodies.FORM, route.largest_body, held)
            call.body = decode_json(route.body, call.raw) if is_api else decode_form(route.body, call.raw)
            return await self._ask(call, route)
        finally:
            held.give_back()

    async def _ask(self, call: Call[Any, Any], route: Route) -> Response:
        reads = route.is_safe or route.only_reads
        try:
            async with asyncio.timeout(None if route.is_stream or not reads else SLOWEST):
                with request_cache.remembering() if reads and not route.is_stream else contextlib.nullcontext():
                    found = await route.function(call)
        except TimeoutError:
            if said := await self._blocking.said(reads=True):
                raise locked(said) from None
            # A storage that is away is tried for as long: then it is not the question that was too wide.
            raise (Problem("unavailable", TOO_LONG) if self.pulse.is_ready else away()) from None
        except StorageTimeout as error:
            if said := await self._blocking.said(reads=reads):
                raise locked(said) from error
            raise
        if not reads:
            log.info(
                "request %s: %s (%s) %s %s",
                call.id, log_path.clean(call.access.user), call.access.role, route.method, self._path(call.request),
            )  # fmt: skip
        if isinstance(found, Response):
            return found
        return JSON(plain(found), status_code=route.status)

    async def refuse(self, request: Request, error: Exception) -> Response:
        """The answer of an error: JSON under the API, a page elsewhere."""
        problem = problem_of(error)
        state = request.scope["state"]
        asked = f"request {state['request_id']}: {log_path.clean(request.method)} {self._path(request)}"
        if problem.message == INTERNAL:
            if self._refused.admits(Line(logging.ERROR, asked, f"internal {type(error).__name__}")):
                self._log_bug(request, asked, error)
        elif problem.status in TOLD or problem.status >= 500:
            text = f"{asked} refused for {log_path.clean(state['access'].user)}: {visible(problem.message)}"
            self._refused.tell(Line(logging.WARNING, text, f"refused {problem.kind}"))
        if problem.kind == "forbidden" and request.method not in SAFE:
            await self._audit_refusal(request, problem)
        is_api = _route_path(request).startswith((f"{BASE}/", "/healthz", "/readyz", "/metrics")) or (
            _route_path(request) == BASE
        )
        # A script that asks for a part must not get a form in its place: it is told 401, and asks for the form itself.
        is_person = not is_api and request.method in SAFE and "hx-request" not in request.headers
        if is_person and problem.kind == "unauthorized" and self.login:
            return RedirectResponse(url_of(request, self.login, {"next": _whole_path(request)}), status_code=303)
        if not is_api and self._problem_page is not None:
            answer = await self._problem_page(self, request, problem)
        elif not is_api:
            answer = PlainTextResponse(f"{problem.message}\n", status_code=problem.status)
        else:
            answer = JSON(problem.as_json(state["request_id"]), status_code=problem.status)
        answer.headers.update(problem.headers)
        return answer

    async def _audit_refusal(self, request: Request, problem: Problem) -> None:
        """Who tried what he may not: one line, as long as somebody is known to have asked."""
        access: Access = request.scope["state"]["access"]
        route: Route | None = request.scope["state"]["route"]
        if route is None or route.is_credential or "action" not in problem.fields or self.is_read_only:
            return
        try:
            told = f"{access.role}, request {request.scope['state']['request_id']}"
            subject = log_path.of_route(" ".join(request.scope["state"]["path"].values())) or route.path
            await self.whole.audit.note(
                "refused", subject[:200], by=access.user, detail=f"{route.method} {route.path} ({told})"
            )
        except Exception as error:
            log.warning("a refusal is not in the audit: %s", error)

    def _path(self, request: Request) -> str:
        """For the log: never with a credential in it."""
        route: Route | None = request.scope["state"]["route"]
        if route is None:
            return log_path.of_none(_route_path(request), self.table.words)
        return route.path if route.is_credential else log_path.of_route(request.scope["path"])

    def _log_bug(self, request: Request, asked: str, error: Exception) -> None:
        state = request.scope["state"]
        route: Route | None = state["route"]
        if route is None or not route.is_credential:
            log.error("%s", asked, exc_info=error)
            return
        text = "".join(traceback.format_exception(error))  # a database may name in it what it was asked for
        for part in state["path"].values():
            text = text.replace(part, log_path.LEFT_OUT)
        log.error("%s\n%s", asked, text)


def _tell_of(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("an operation is left to others: %s", error)


def _route_path(request: Request) -> str:
    from .access import route_path

    return route_path(request.scope)


def _whole_path(request: Request) -> str:
    """What was asked for, with its query, below the mount point. What is no page is not repeated: it may hold a
    token."""
    if request.scope["state"]["route"] is None:
        return "/"
    query = request.url.query
    return quote(_route_path(request)) + (f"?{query}" if query else "")


def _problem_page() -> Callable[[Dashboard, Request, Problem], Awaitable[Response]] | None:
    """`web.pages.problem(web, request, problem) -> Response`, if there are pages."""
    if importlib.util.find_spec("treadle.web.pages") is None:
        return None
    from importlib import import_module

    found: Callable[[Dashboard, Request, Problem], Awaitable[Response]] | None
    found = getattr(import_module("treadle.web.pages"), "problem", None)
    return found
