"""What all pages share: the frame around them, how they are rendered, and what is said after an act.

The same URL answers with the whole page, or with what is inside the frame when a script asks (`HX-Request`): then with
an ETag, so that a refetch after a hint costs nothing if nothing has changed. The words of relative times do not count:
a script keeps them going.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ... import __version__
from ...core.command_line import Command
from ...core.command_line import quote as quoted
from ...core.command_line import render as command_line
from ...core.errors import TreadleError
from ...core.series import Point
from ...core.settings import rate_words
from ...core.text import halves, visible, visible_lines
from ..access import NOBODY, Access
from ..routing import Call, url_of
from . import assets, words

SAID: Final = "treadle_said"
THEMES: Final = ("system", "light", "dark")
_TIMES: Final = re.compile(r"(<time [^>]*?)(?: title=\"[^\"]*\")?( [^>]*)?>[^<]*</time>")
_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")


class PageLink(NamedTuple):
    name: str
    path: str
    word: str
    key: str
    gap: bool = False


PAGES: Final = (
    PageLink("overview", "/", "Overview", "o"),
    PageLink("jobs", "/jobs", "Jobs", "j"),
    PageLink("failures", "/failures", "Failures", "f"),
    PageLink("queues", "/queues", "Queues", "q"),
    PageLink("pods", "/pods", "Pods", "p"),
    PageLink("schedules", "/schedules", "Schedules", "s"),
    PageLink("performance", "/performance", "Performance", "t", gap=True),
    PageLink("limits", "/limits", "Limits", "l"),
    PageLink("operations", "/operations", "Operations", "a"),
    PageLink("system", "/system", "System", "y"),
)


class Said(msgspec.Struct):
    """What came of the last act, told on the next page."""

    text: str
    bad: bool = False


@dataclass(slots=True)
class Frame:
    """What the templates know of the request, whatever the page is."""

    request: Request
    access: Access
    env: str | None
    color: str | None
    read_only: bool
    stands_by: bool = False  # the storage itself cannot be written
    login: str | None = None  # the path of the form that logs in, if there is one; then there is a logout, too
    layout: str = "base.html"

    pages = PAGES
    version = __version__

    def url(self, path: str, **query: Any) -> str:
        return url_of(self.request, path, query)

    def static(self, name: str) -> str:
        return self.url(assets.path_of(name))

    def has(self, name: str) -> bool:
        return assets.has(name)

    def may(self, action: Any) -> bool:
        return self.access.may(action) and (action in ("see", "payload") or not self.read_only)

    @property
    def root(self) -> str:
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    @property
    def here(self) -> str:
        """This page below the mount point, for coming back. What is no page is not repeated: it may hold a token."""
        if self.request.scope["state"]["route"] is None:
            return "/"
        query = self.request.url.query
        path = self.request.url.path.removeprefix(self.root) or "/"
        return path + (f"?{query}" if query else "")

    @property
    def theme(self) -> str:
        found = self.request.cookies.get("treadle_theme", "system")
        return found if found in THEMES else "system"

    @property
    def zone(self) -> str:
        return "utc" if self.request.cookies.get("treadle_zone") == "utc" else "local"

    @property
    def keys(self) -> str:
        return "off" if self.request.cookies.get("treadle_keys") == "off" else "on"

    @property
    def who(self) -> str:
        return who(self.access)

    @property
    def time(self) -> int:
        """Milliseconds by this server's clock: by it scripts reckon how long ago something was."""
        return int(time.time() * 1000)

    @property
    def can_log_out(self) -> bool:
        """Where a form has logged somebody in: a browser's own password box, or a host's login, is not ours to end."""
        return self.login is not None and self.access is not NOBODY

    @property
    def user(self) -> str:
        return self.access.user

    @property
    def role(self) -> str:
        return self.access.role


def _ago(at: datetime) -> str:
    return words.ago(at, datetime.now(UTC))


def _finished(points: Sequence[Point]) -> list[int]:
    """How many runs ended in each step, without the one that has only begun."""
    return [point.finished for point in points[:-1]]


def _by_queue(queues: Sequence[str], frame: Frame) -> list[tuple[str, str]]:
    return [(each, frame.url("/failures", queue=each)) for each in queues]


class Exact(str):
    """A text that goes into a page as it is stored: what a form sends back, what a button copies."""


def _shown(value: Any) -> Any:
    """Every value on its way into a page. A text shows all its characters: none turns the direction of what follows it,
    or hides. (Markup is what a macro has made: its values have been here.)"""
    return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup | Exact) else value


def _halves(text: str) -> tuple[str, str]:
    return halves(visible(text))


@cache
def templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent.parent / "templates"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "ago": _ago,
        "iso": words.iso,
        "moment": words.moment,
        "clock": words.clock,
        "drain": words.drain,
        "span": words.span,
        "number": words.number,
        "count": words.count,
        "share": words.share,
        "size": words.size,
        "line": words.one_line,
        "pretty": words.pretty,
        "first_line": words.first_line,
        "exact": Exact,
        "quoted": quoted,
        "halves": _halves,
        "spark": words.spark,
        "rate": rate_words,
        "vital": words.vital,
        "finished": _finished,
        "by_queue": _by_queue,
    }
    known: Any = found  # its two tables have no types
    known.filters.update(filters)
    parts: Any = found.get_template("_parts.html").module
    # The same few marks stand in every row of a table. Nothing but the arguments tells what they look like.
    parts.state, parts.icon = lru_cache(256)(parts.state), lru_cache(256)(parts.icon)
    parts.name = lru_cache(1024)(parts.name)
    known.globals["p"] = parts
    return found


class Commanded(NamedTuple):
    """A command as it stands now, and its template for the script that follows the fields."""

    text: str
    whole: bool
    template: str


def commanded(command: Command, fields: Iterable[Any] = ()) -> Commanded:
    """The command for the values that the fields of a form have now."""
    values = {each.name: "" if each.value is None else str(each.value) for each in fields}
    shown = command_line(command, values)
    return Commanded(shown.text, shown.whole, msgspec.json.encode(command).decode() if values else "")


def frame_of(call: Call[Any, Any]) -> Frame:
    return frame_for(call.request, call.access, call.web)


def frame_for(request: Request, access: Access, web: Any) -> Frame:
    color = web.color if web.color and _COLOUR.fullmatch(web.color) else None
    return Frame(request, access, web.env, color, web.is_read_only, web.standing.stands_by, web.login)


def who(access: Access) -> str:
    """A short mark of whoever is logged in, with its rights: tabs with another one share nothing."""
    whole = "\n".join([access.user, access.role, *sorted(access.actions)])
    return hashlib.blake2b(whole.encode("utf-8", "replace"), digest_size=6).hexdigest()


def wants_part(request: Request) -> bool:
    return "hx-request" in request.headers


async def render(call: Call[Any, Any], template: str, *, status: int = 200, **values: Any) -> Response:
    """The page, or what is inside its frame. `page` is its name in the rail; `topics` are the hints it is asked for
    again."""
    frame = frame_of(call)
    part = wants_part(call.request)
    if part:
        frame.layout = "dialog.html" if "treadle-dialog" in call.request.headers else "part.html"
    if frame.layout != "dialog.html":
        values.setdefault("operations", await _under_way(call))
    else:
        values.setdefault("operations", ())
    return answer(frame, template, part=part, status=status, **values)


def answer(frame: Frame, template: str, *, part: bool, status: int = 200, **values: Any) -> Response:
    given: dict[str, Any] = {"filter": "", "topics": "", "points": "", "charts": False, "page": "", "operations": ()}
    said = None if part else _said(frame.request)
    html = templates().get_template(template).render(given | {"said": said} | values | {"frame": frame})
    headers = {"Vary": "HX-Request, Cookie", "Treadle-Who": frame.who, "Treadle-Time": f"{frame.time}"}
    if part and status == 200:
        etag = _etag(html)
        if frame.request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={**headers, "ETag": etag})
        headers["ETag"] = etag
    response = HTMLResponse(html, status_code=status, headers=headers)
    if said is not None:
        response.delete_cookie(SAID, path=frame.root or "/")
    return response


def _etag(html: str) -> str:
    timeless = _TIMES.sub(r"\1\2></time>", html).encode("utf-8", "replace")
    return f'"{hashlib.blake2b(timeless, digest_size=12).hexdigest()}"'


async def _under_way(call: Call[Any, Any]) -> list[Any]:
    try:
        found = [each for each in await call.app.operations.list(limit=5) if not each.is_over]
        return [call.web.redact.operation(each, call.access) for each in found]
    except TreadleError:
        return []  # the page itself will say what is wrong


def _said(request: Request) -> Said | None:
    found = request.cookies.get(SAID)
    if found is None:
        return None
    try:
        return msgspec.json.decode(unquote(found), type=Said)
    except msgspec.MsgspecError:
        return None


def done(call: Call[Any, Any], text: str, path: str, *, bad: bool = False, go: bool = False, **query: Any) -> Response:
    """After an act: back to a page that says what came of it. A script stays where it is, unless it should `go`."""
    call.web.counts.forget()
    target = call.url(path, **query)
    if wants_part(call.request):
        body = msgspec.json.encode({"said": text, "bad": bad, "go": target if go else None})
        return Response(body, media_type="application/json")
    response = RedirectResponse(target, status_code=303)
    packed = quote(msgspec.json.encode(Said(text[:500], bad)))
    root = str(call.request.scope.get("root_path", "")).rstrip("/")
    response.set_cookie(SAID, packed, max_age=30, path=root or "/", httponly=True, samesite="strict")
    return response
