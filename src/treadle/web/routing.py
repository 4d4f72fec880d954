"""Routes, declared once: from a declaration come decoding, the access check, OpenAPI and the test matrix.

A file of routes has one table of its own, which `dashboard` collects:

    routes = Routes()

    class ListQuery(Struct, forbid_unknown_fields=True):
        filter: str = ""
        limit: Annotated[int, Meta(ge=1, le=200)] = 50

    @routes.api("GET", "/jobs", action="see", query=ListQuery, answer=JobPage)     # under /api/v1, answers with JSON
    async def find(call: Call[ListQuery, None]) -> Any:
        return await call.app.jobs.find(call.query.filter, limit=call.query.limit)

    @routes.page("GET", "/jobs", action="see", query=ListQuery)                    # a page: answers with a Response
    async def jobs(call: Call[ListQuery, None]) -> Response: ...

    @routes.page("POST", "/queues/{name}/pause", action="pause", form=PauseForm)   # a form: urlencoded, then 303
    async def pause(call: Call[None, PauseForm]) -> Response:
        await call.app.queues.pause(call.path["name"], by=call.by)
        return call.redirect("/queues")

No route without an action; `PUBLIC` in its place must be written out and is listed in a test. `{name}` is one segment
of the path, never empty and without a slash. The query of an API route refuses what it does not know; that of a page
leaves it out. A field that is a list or tuple takes a repeated parameter. `only_reads` marks an unsafe method that
changes nothing (a preview): it passes where all is read-only. `in_memory` passes there, too: what it would write is
then kept in this process.

A body has 2 MiB at most, and 4 KiB where the route is public; `largest` says otherwise. `before` is a function of the
call that is asked before anything of the body is read: a route whose path holds the credential looks at it there.

`call.app` is the App to ask. For GET, and for whatever only reads, it is one that cannot write at all.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..core import payload
from ..core.request_body import LARGEST, LARGEST_ANONYMOUS
from .access import ACTIONS, SAFE, Access, Action
from .problem import Problem

if TYPE_CHECKING:
    from ..app import App
    from .dashboard import Dashboard

BASE: Final = "/api/v1"
MOST_FIELDS: Final = 200

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Kind = Literal["api", "page"]
Q = TypeVar("Q")
B = TypeVar("B")
Handler = Callable[[Any], Awaitable[Any]]


class Public:
    """In the place of an action: everybody may, without a login."""


PUBLIC: Final = Public()


class Nothing(Struct, forbid_unknown_fields=True):
    """No parameters, or an empty body."""


@dataclass(slots=True)
class Call(Generic[Q, B]):
    """One request, decoded and allowed."""

    web: Dashboard
    app: App
    request: Request
    access: Access
    path: Mapping[str, str]
    query: Q
    body: B
    raw: bytes = b""  # the body as it came, for a signature

    @property
    def id(self) -> str:
        """The request's: also that of its line in the audit, if it writes one."""
        return cast("str", self.request.scope["state"]["request_id"])

    @property
    def by(self) -> str:
        return self.access.user

    def may(self, action: Action) -> bool:
        return self.access.may(action) and not (self.web.is_read_only and action not in ("see", "payload"))

    def need(self, action: Action) -> None:
        """For a route whose body decides what it does."""
        if not self.access.may(action):
            raise Problem("forbidden", f"your role ({self.access.role}) may not do this", fields={"action": action})

    def url(self, path: str, **query: Any) -> str:
        """A path of the dashboard, right under any mount prefix."""
        return url_of(self.request, path, query)

    def redirect(self, path: str, **query: Any) -> Response:
        return RedirectResponse(self.url(path, **query), status_code=303)


def url_of(request: Request, path: str, query: Mapping[str, Any] = {}) -> str:
    root = str(request.scope.get("root_path", "")).rstrip("/")
    given = {name: value for name, value in query.items() if value is not None and value != ""}
    return f"{root}{quote(path)}" + (f"?{urlencode(given, doseq=True)}" if given else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is declared of one method of one path."""

    kind: Kind
    method: Method
    path: str  # whole, with {names}
    action: Action | None  # None: public
    function: Handler
    query: type[Any] | None = None
    body: Any = None  # JSON for an API route, urlencoded for a page
    answers: tuple[Any, ...] = ()  # the types that it may answer with
    status: int = 200
    only_reads: bool = False
    in_memory: bool = False  # passes where all is read-only: there it changes nothing but the memory of this process
    is_stream: bool = False
    is_credential: bool = False  # what the path holds proves who asks, and where from
    largest: int | None = None  # bytes of a body; None: as much as whoever is logged in may send, or little
    before: Handler | None = None  # asked before the body is read, with a Call that has none
    media: str = "application/json"
    summary: str = ""
    problems: tuple[int, ...] = ()  # statuses beside those that every route may have
    parts: tuple[str, ...] = field(default=())

    @property
    def is_public(self) -> bool:
        return self.action is None

    @property
    def is_safe(self) -> bool:
        return self.method in SAFE

    @property
    def largest_body(self) -> int:
        if self.largest is not None:
            return self.largest
        return LARGEST_ANONYMOUS if self.is_public else LARGEST

    @property
    def names(self) -> tuple[str, ...]:
        """The variable parts of its path."""
        return tuple(part[1:-1] for part in self.parts if part.startswith("{"))

    @property
    def name(self) -> str:
        """For OpenAPI: `jobs.find`."""
        module = self.function.__module__.rpartition(".")[2]
        return f"{module}.{self.function.__name__}"


class Routes:
    """The routes of one file."""

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def api(
        self,
        method: Method,
        path: str,
        *,
        action: Action | Public,
        query: type[Any] | None = None,
        body: Any = None,
        answer: Any = None,
        or_answer: Any = None,
        status: int = 200,
        only_reads: bool = False,
        in_memory: bool = False,
        is_stream: bool = False,
        is_credential: bool = False,
        largest: int | None = None,
        before: Handler | None = None,
        media: str = "application/json",
        problems: Iterable[int] = (),
        base: str = BASE,
    ) -> Callable[[Handler], Handler]:
        """A route of the API. It answers with a value that `plain` knows, or with a Response."""
        return self._declare(
            kind="api",
            method=method,
            path=base + path,
            action=action,
            query=query,
            body=body,
            answers=tuple(each for each in (answer, or_answer) if each is not None),
            status=status,
            only_reads=only_reads,
            in_memory=in_memory,
            is_stream=is_stream,
            is_credential=is_credential,
            largest=largest,
            before=before,
            media=media,
            problems=tuple(problems),
        )

    def page(
        self,
        method: Method,
        path: str,
        *,
        action: Action | Public,
        query: type[Any] | None = None,
        form: type[Any] | None = None,
        only_reads: bool = False,
        in_memory: bool = False,
    ) -> Callable[[Handler], Handler]:
        """A page, or what a form is sent to. It answers with a Response."""
        return self._declare(
            kind="page",
            method=method,
            path=path,
            action=action,
            query=query,
            body=form,
            only_reads=only_reads,
            in_memory=in_memory,
        )

    def _declare(self, *, action: Action | Public, **said: Any) -> Callable[[Handler], Handler]:
        if not isinstance(action, Public) and action not in ACTIONS:
            raise ValueError(f"{said['method']} {said['path']}: there is no action {action!r}")

        def declare(function: Handler) -> Handler:
            summary = (function.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
            self._routes.append(
                Route(
                    action=None if isinstance(action, Public) else action,
                    function=function,
                    summary=" ".join(summary.split()),
                    parts=_segments(said["path"]),
                    **said,
                )
            )
            return function

        return declare


# ---------------------------------------------------------------------------------------------------------------------
# Which route a request means


@dataclass(frozen=True, slots=True)
class Found:
    """`route` is None if nothing is declared for it; `allow` are the methods that its path has."""

    route: Route | None
    parts: Mapping[str, str]
    allow: tuple[str, ...] = ()


class Table:
    """All routes of a dashboard. A path without variable parts goes before one with them."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self.words = frozenset(part for route in self.routes for part in route.parts if not part.startswith("{"))
        self._paths: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in self.routes:
            methods = self._paths.setdefault(_shape(route.parts), {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.path} is declared twice")
            methods[route.method] = route
        self._lengths: dict[int, list[tuple[str, ...]]] = {}
        for shape in sorted(self._paths, key=lambda shape: [part == "{}" for part in shape]):
            self._lengths.setdefault(len(shape), []).append(shape)

    def find(self, method: str, path: str) -> Found:
        given = _segments(path)
        for shape in self._lengths.get(len(given), ()):
            if all(want == has or (want == "{}" and has) for want, has in zip(shape, given, strict=True)):
                methods = self._paths[shape]
                route = methods.get("GET" if method == "HEAD" else method)
                some = route or next(iter(methods.values()))
                parts = {part[1:-1]: has for part, has in zip(some.parts, given, strict=True) if part.startswith("{")}
                allow: list[str] = sorted(methods) + (["HEAD"] if "GET" in methods else [])
                return Found(route, parts, tuple(allow))
        return Found(None, {})


def _segments(path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix("/").split("/"))


def _shape(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("{}" if part.startswith("{") else part for part in parts)


# ---------------------------------------------------------------------------------------------------------------------
# Decoding


def decode_query(kind: type[Any] | None, pairs: Iterable[tuple[str, str]], *, strict: bool) -> Any:
    """Parameters as the Struct that is declared for them; `strict` refuses those that it does not have."""
    return decode_pairs(Nothing if kind is None else kind, list(pairs), strict=strict and kind is not None)


def decode_form(kind: type[Any] | None, body: bytes) -> Any:
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MOST_FIELDS,
            errors="strict",
            strict_parsing=False,
        )
    except ValueError:
        raise Problem("validation", "the form cannot be read") from None
    return decode_pairs(Nothing if kind is None else kind, pairs, strict=False)


def decode_pairs(kind: type[Any], pairs: list[tuple[str, str]], *, strict: bool) -> Any:
    fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            if strict:
                raise Problem("validation", f'unknown parameter "{name[:100]}"', fields={"field": name[:100]})
            continue
        if takes_many(fields[name].type):
            given.setdefault(name, []).append(value)
        elif strict and name in given:
            raise Problem("validation", f'the parameter "{name[:100]}" is there twice', fields={"field": name[:100]})
        else:
            given[name] = value
    if not strict:  # an empty field of a form is one that nobody filled in
        given = {name: value for name, value in given.items() if value != ""}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem("validation", str(error), fields={"field": _field_of(error)}) from None


def decode_json(kind: Any, body: bytes) -> Any:
    try:
        check_keys(body or b"{}")
        return msgspec.json.decode(body or b"{}", type=Nothing if kind is None else kind)
    except msgspec.ValidationError as error:
        raise Problem("validation", str(error), fields={"field": _field_of(error)}) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Problem("validation", "the body is not valid JSON, or nested too deep") from None


def check_keys(text: str | bytes, where: str = "the body") -> None:
    """Problem, if a key stands twice in one object: who checked the request before us may have read the other."""
    if (key := payload.duplicate_key(text)) is not None:
        raise Problem(
            "validation", f"{where} has the key {key[:100]!r} twice in one object", fields={"field": key[:100]}
        )


def takes_many(kind: Any) -> bool:
    """Whether a field is a list or a tuple, perhaps one that may be left out."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return any(map(takes_many, typing.get_args(kind)))
    if origin is typing.Annotated:
        return takes_many(typing.get_args(kind)[0])
    return (origin or kind) in (list, tuple, set, frozenset)


def _field_of(error: Exception) -> str:
    """The place that a validation error names, such as `jobs[3].task`."""
    _, _, place = str(error).rpartition(" - at `$")
    return place.rstrip("`").removeprefix(".")
