"""Tokens: who has one may enter, in the role that it was made for.

A token is 256 bits of chance, shown once. Kept is its SHA-256, one line for each in a file that only its owner can
read: `name role hash expires`, where `-` means never. The file is read again when it changes, so that a token that is
taken out of it ends at once, with every session that was begun with it.

Programs send it as `Authorization: Bearer …`. People give it to a form, or follow a link that has it behind `#`, which
no server and no log sees; either way it becomes a cookie that names a session, not the token. Sessions are of this
process: after a restart people log in again. Ten wrong tokens in a minute from one address, and further wrong ones are
answered with 429; a right one always passes (see `core.login_throttle`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ..core.errors import ConfigError
from ..core.file_trust import Rules
from ..core.local_path import local
from ..core.login_throttle import Throttle
from ..private_files import Untrusted, check_if_there, check_parent, open_there
from ..private_files import make as make_file
from .access import ROLES, Access
from .login_throttle import caller, too_many
from .plain import JSON
from .problem import Problem
from .routing import PUBLIC, Call, Routes

PREFIX: Final = "tdl_"
SESSION: Final = 12 * 3600.0
MOST_SESSIONS: Final = 10_000
COOKIE: Final = "treadle"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_NEVER: Final = "-"


class Token(Struct, frozen=True):
    """What is kept of one."""

    name: str
    role: str
    digest: str
    expires: float | None = None

    def line(self) -> str:
        until = _NEVER if self.expires is None else datetime.fromtimestamp(self.expires, UTC).isoformat("T", "seconds")
        return f"{self.name} {self.role} {self.digest} {until}"


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def make(name: str, role: str, *, expires: float | None = None) -> tuple[Token, str]:
    """What is kept, and the token itself, which nobody keeps."""
    if not _NAME.fullmatch(name):
        raise ConfigError("a token's name has 1 to 64 letters, digits and _ . @ -")
    if role not in ROLES:
        raise ConfigError(f"there is no role {role!r}: one of {', '.join(ROLES)}")
    token = new_token()
    return Token(name, role, digest(token), expires), token


# ---------------------------------------------------------------------------------------------------------------------
# The file


def read(path: Path) -> tuple[Token, ...]:
    """The tokens in a file. Whatever is wrong with it is refused: nobody enters by mistake."""
    try:
        found, text = _content(os.path.realpath(path))
    except Untrusted as error:
        raise ConfigError(f"the token file {path} cannot be trusted: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"the token file {path} cannot be read: {reason}") from None
    if found.st_mode & 0o077:
        raise ConfigError(f"the token file {path} can be read by others: chmod 600 {path}")
    tokens = tuple(
        _parsed(line, path, number)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    )
    if len({each.name for each in tokens}) < len(tokens):
        raise ConfigError(f"the token file {path} has a name twice")
    return tokens


def _content(path: str) -> tuple[os.stat_result, str]:
    """By its real path: a link that somebody made on purpose (secrets of Kubernetes are links) has been resolved. What
    was looked at is what is read."""
    shared = check_parent(os.path.dirname(path))
    descriptor = open_there(path, os.O_RDONLY, Rules(shared=shared, private=False, one_name=False))
    with os.fdopen(descriptor, encoding="utf-8") as file:
        return os.fstat(descriptor), file.read()


def _parsed(line: str, path: Path, number: int) -> Token:
    parts = line.split()
    if len(parts) != 4 or parts[1] not in ROLES or not re.fullmatch(r"[0-9a-f]{64}", parts[2]):
        raise ConfigError(f"{path}:{number} is not `name role hash expires`")
    try:
        expires = None if parts[3] == _NEVER else datetime.fromisoformat(parts[3]).timestamp()
    except ValueError:
        raise ConfigError(f"{path}:{number}: {parts[3]} is no moment") from None
    return Token(parts[0], parts[1], parts[2], expires)


def write(path: Path, tokens: Iterable[Token]) -> None:
    """Replace the file as a whole. It is its owner's alone from its first byte."""
    head = "# Tokens of `treadle web`: name, role, SHA-256, expires. Made by `treadle tokens`.\n"
    text = head + "".join(f"{each.line()}\n" for each in tokens)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = Path(os.path.realpath(path))
    try:
        shared = check_parent(str(path.parent))
        check_if_there(str(path), Rules(shared=shared, private=False, one_name=False))
    except Untrusted as error:
        raise ConfigError(f"the token file {path} cannot be trusted: {error}") from None
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = make_file(str(beside))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


# ---------------------------------------------------------------------------------------------------------------------
# Who asks


class Tokens:
    """What `Dashboard(access=…)` asks, with the routes of a login."""

    def __init__(
        self,
        tokens: Iterable[Token] = (),
        *,
        path: Path | None = None,
        clock: Callable[[], float] = lambda: time.time(),
    ) -> None:
        """Tokens in hand, or those of a file."""
        self._path = path
        self._clock = clock
        self._tokens = {each.name: each for each in (tokens if path is None else read(path))}
        self._stamp = self._stamped()
        self._sessions: dict[str, tuple[Token, float]] = {}
        self._throttle = Throttle()
        if not self._tokens:
            raise ConfigError("there is no token: make one with `treadle tokens add NAME`")

    @property
    def routes(self) -> Routes:
        return routes

    def __call__(self, request: Request) -> Access | None:
        self._look_again()
        given = request.headers.get("authorization", "")
        if given:
            kind, _, value = given.partition(" ")
            token = self._named(value.strip(), request) if kind.lower() == "bearer" else None
            return None if token is None else Access(token.name, token.role)
        found = self._sessions.get(digest(_cookie(request)))
        if found is None:
            return None
        token, until = found
        if self._clock() >= until or not self._holds(token):
            return None
        return Access(token.name, token.role)

    def log_in(self, given: str, request: Request) -> tuple[str, Access] | None:
        """A new session for a right token, and whose it is. The one that the browser had before ends."""
        self._look_again()
        token = self._named(given.strip(), request)
        if token is None:
            return None
        self.log_out(request)
        now = self._clock()
        self._sessions = {key: each for key, each in self._sessions.items() if each[1] > now}
        if len(self._sessions) >= MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        session = secrets.token_urlsafe(32)
        self._sessions[digest(session)] = (token, now + SESSION)
        return session, Access(token.name, token.role)

    def log_out(self, request: Request) -> None:
        self._sessions.pop(digest(_cookie(request)), None)

    def _named(self, given: str, request: Request) -> Token | None:
        """The token that was given. All are compared, so that the time tells nothing; and before any limit, so that
        nobody can lock its owner out. Problem, if it is wrong and there were too many of those."""
        wanted, found = digest(given), None
        for token in self._tokens.values():
            if hmac.compare_digest(token.digest, wanted):
                found = token
        if found is None or not self._holds(found):
            bucket, now = caller(request), self._clock()
            if wait := self._throttle.wait(bucket, now):
                raise too_many(wait)
            self._throttle.note(bucket, now)
            return None
        return found

    def _holds(self, token: Token) -> bool:
        now = self._tokens.get(token.name)
        return now == token and (token.expires is None or self._clock() < token.expires)

    def _stamped(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0)
        return found.st_mtime_ns, found.st_ino

    def _look_again(self) -> None:
        stamp = self._stamped()
        if self._path is None or stamp == self._stamp:
            return
        try:
            self._tokens = {each.name: each for each in read(self._path)}
        except ConfigError:
            self._tokens = {}  # failure is closed
        self._stamp = stamp


def _cookie(request: Request) -> str:
    return request.cookies.get(cookie_name(request), "")


def cookie_name(request: Request) -> str:
    """With TLS and the whole host to itself, one that no other host can have set. A browser sends a host's cookies to
    all of its ports: the port is part of the name, so that two dashboards of one machine do not log each other out."""
    name = COOKIE if request.url.port is None else f"{COOKIE}-{request.url.port}"
    return f"__Host-{name}" if _is_secure(request) and not request.scope.get("root_path") else name


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


# ---------------------------------------------------------------------------------------------------------------------
# The form

routes = Routes()


class LoginQuery(Struct, kw_only=True):
    next: str = "/"
    out: bool = False  # whoever asks has just logged out


class LoginForm(Struct, kw_only=True):
    token: str = ""
    next: str = "/"


WRONG: Final = "This token is not known here, or it has expired or been revoked."

# Reads the token behind the `#`, where no server sees it, and sends it with the form.
SCRIPT: Final = """\
const token = decodeURIComponent(location.hash.slice(1));
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.querySelector("form");
  form.elements.token.value = token;
  form.submit();
}
"""


@routes.page("GET", "/login", action=PUBLIC, query=LoginQuery)
async def login_page(call: Call[LoginQuery, None]) -> Response:
    """The form: a page of its own, or what a dialog shows when a session has ended."""
    return _form(call, call.query.next, said="You are logged out." if call.query.out else "")


@routes.page("GET", "/login.js", action=PUBLIC)
async def login_script(call: Call[None, None]) -> Response:
    return Response(SCRIPT, media_type="text/javascript")


@routes.page("POST", "/login", action=PUBLIC, form=LoginForm, only_reads=True)
async def log_in(call: Call[None, LoginForm]) -> Response:
    """To the page that was asked for. A dialog stays where it is, and is told who has logged in."""
    from .pages import frame

    tokens = call.web.authenticate
    in_place = frame.wants_part(call.request)
    refusal: Problem | None = None
    found = None
    try:
        found = tokens.log_in(call.body.token, call.request) if isinstance(tokens, Tokens) else None
    except Problem as problem:
        refusal = problem
    if found is None:
        refusal = refusal or Problem("unauthorized", WRONG)
        if in_place:
            raise refusal
        return _form(call, call.body.next, problem=refusal)
    session, access = found
    root = str(call.request.scope.get("root_path") or "").rstrip("/")
    if in_place:
        answer: Response = JSON({"user": access.user, "who": frame.who(access)})
    else:
        answer = RedirectResponse(root + local(call.body.next), status_code=303)
    answer.set_cookie(
        cookie_name(call.request),
        session,
        max_age=int(SESSION),
        path=root or "/",
        secure=_is_secure(call.request),
        httponly=True,
        samesite="strict",
    )
    return answer


# For everybody: whose session has ended already may press the button, too.
@routes.page("POST", "/logout", action=PUBLIC, only_reads=True)
async def log_out(call: Call[None, None]) -> Response:
    """The session ends on the server; its streams do within ten seconds."""
    tokens = call.web.authenticate
    if isinstance(tokens, Tokens):
        tokens.log_out(call.request)
    answer = call.redirect("/login", out="1")
    answer.delete_cookie(cookie_name(call.request), path=str(call.request.scope.get("root_path") or "/"))
    return answer


def _form(call: Call[Any, Any], following: str, *, said: str = "", problem: Problem | None = None) -> Response:
    from .pages import frame

    in_place = frame.wants_part(call.request)
    html = (
        frame.templates()
        .get_template("_login.html" if in_place else "login.html")
        .render(
            frame=frame.frame_of(call),
            title="Your session has expired" if in_place else "Log in",
            words="The page may be out of date; what you have typed is still there." if in_place else "",
            next=local(following),
            in_place=in_place,
            said=said,
            problem=problem,
        )
    )
    if problem is None:
        return HTMLResponse(html)
    return HTMLResponse(html, status_code=problem.status, headers=problem.headers)
