"""Hook: a service that does the work, asked by one POST. Which hosts and addresses may be asked is decided here."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict
from urllib.parse import quote, urlsplit

from msgspec import Struct

from ...core.address_ranges import Network, may_connect
from ...core.address_ranges import read as read_address
from ...core.duration import Duration, seconds
from ...core.errors import ConfigError, PayloadError
from ...core.size import Size, size
from . import Stub, TaskOptions, check_types
from .template import Template, text_of

EXECUTOR: Final = "http"
DEFAULT_TIMEOUT: Final = 30.0
DEFAULT_RESPONSE: Final = 1 << 20
_PORTS: Final = {"http": 80, "https": 443}
_LAST_PORT: Final = 65_535
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f\\]")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_OURS: Final = {"host", "content-length", "content-type", "connection", "transfer-encoding", "expect", "upgrade", "te"}


class Said(TypedDict, total=False):
    """What a service's declaration may say besides its URL."""

    allow: Iterable[str] | None
    private: bool | Iterable[str]
    secret: str | None
    headers: Mapping[str, str]
    answers: Duration | None
    answer_url: str | None
    response: Size
    ca: str | None


class HttpOptions(TaskOptions, Said, total=False):
    """All that `@app.http` takes by name."""


class Target(Struct, frozen=True):
    """Where one request goes, as far as its URL says."""

    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def authority(self) -> str:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class Hook:
    """A declared service. What is wrong with it is a ConfigError, where it is written."""

    executor = EXECUTOR

    def __init__(self, function: Callable[..., Any], task: str, url: str, options: Mapping[str, Any]) -> None:
        self.task = task
        self.stub = Stub(function, task)
        try:
            self._read(url, **options)
        except ValueError as error:
            raise ConfigError(f"task {task}: {error}") from None

    def _read(
        self,
        url: str,
        *,
        allow: Iterable[str] | None = None,
        private: bool | Iterable[str] = False,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        answers: Duration | None = None,
        answer_url: str | None = None,
        response: Size = DEFAULT_RESPONSE,
        ca: str | None = None,
    ) -> None:
        self.url = Template(url)
        self.allow = None if allow is None else tuple(_entry(each) for each in _several("allow", allow))
        if self.url.whole is None:
            fixed = self.url.fill(dict.fromkeys(self.url.slots, "x"), lambda name, value: value)
            target = read_url(fixed)
            if "{" in url.split("://", 1)[-1].split("/", 1)[0]:
                raise ValueError("its host is chosen here: slots are for the path and the query of its URL")
            # Where its port is declared, an entry needs none.
            if self.allow is not None and not any(
                _matches((host, port or target.port), target) for host, port in self.allow
            ):
                raise ValueError(f"its host {target.authority} is not among those that are allowed")
            self.allow = ((target.host, target.port),)
        elif not self.allow:
            raise ValueError('a URL that jobs choose needs hosts that they may choose, allow=["hooks.example.com"]')
        for name in self.url.slots:
            if name not in self.stub.names:
                raise ValueError(f"{name!r} is not among its parameters ({', '.join(self.stub.names) or 'none'})")
        self.private = private if isinstance(private, bool) else _networks(private)
        if secret is not None and not secret:
            raise ValueError("secret must not be empty: everybody could sign with it")
        self.secret = secret
        self.headers = _headers(headers or {})
        self.answers = None if answers is None else seconds(answers, "answers")
        if answer_url is not None and Template(answer_url).slots != ("token",):
            raise ValueError("answer_url needs the slot {token}, for example https://jobs.example.com/answers/{token}")
        self.answer_url = None if answer_url is None else Template(answer_url)
        self.response = size(response, "response")
        self.ca = ca

    def check(self, arguments: Mapping[str, Any]) -> None:
        check_types(self.stub, arguments)
        self.target(arguments)

    def target(self, arguments: Mapping[str, Any]) -> Target:
        """Where a job's request goes. PayloadError if it may not."""
        values = self.stub.complete({name: self.stub.convert(name, value) for name, value in arguments.items()})
        whole = self.url.whole
        try:
            target = read_url(self.url.fill(values, text_of if whole is not None else _quoted))
        except ValueError as error:
            raise PayloadError(str(error), whole or "") from None
        if not any(_matches(entry, target) for entry in self.allow or ()):
            raise PayloadError(f"the host {target.authority} is not among those that are allowed", whole or "")
        return target

    def secret_from(self, environ: Mapping[str, str]) -> str | None:
        """The secret; `$NAME` stands for that environment variable of the worker."""
        if self.secret is None or not (found := _VARIABLE.fullmatch(self.secret)):
            return self.secret
        if not environ.get(found[1]):
            raise ConfigError(f"task {self.task}: the environment variable {found[1]} with its secret is not set")
        return environ[found[1]]


def read_url(url: str) -> Target:
    """ValueError unless it is a plain URL of a web server."""
    if _FORBIDDEN.search(url):
        raise ValueError("a URL has no spaces, control characters or backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("the URL cannot be read") from None
    if parts.scheme not in _PORTS:
        raise ValueError("a URL must begin with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError("a URL holds no user name or password: use headers")
    try:
        host = (parts.hostname or "").rstrip(".")
        host = host if ":" in host else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        host = ""
    # Looked at once more after the encoding, which takes compatibility characters apart: U+02DB holds a space.
    if not _HOST.fullmatch(host) or port == 0:
        raise ValueError("the URL names no host that can be asked")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], f"{path}?{query}" if query else path)


def may_ask(address: str, private: bool | tuple[Network, ...]) -> bool:
    """Whether an address may be connected to: a public one (`core.address_ranges`), or one that was allowed."""
    return (private is True and read_address(address) is not None) or may_connect(
        address, () if isinstance(private, bool) else private
    )


def _matches(entry: tuple[str, int | None], target: Target) -> bool:
    host, port = entry
    fits = target.port in _PORTS.values() if port is None else target.port == port
    return fits and (host in ("*", target.host) or (host.startswith("*.") and target.host.endswith(host[1:])))


def _entry(text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":") if text.count(":") == 1 or text.startswith("[") else (text, "", "")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT):
        host, colon = text, ""
    host = host.strip("[]").lower()
    if not host or "/" in host or "*" in host.removeprefix("*"):
        raise ValueError(f"allow: {text!r} is not a host, for example hooks.example.com, *.example.com or [::1]:8080")
    return host, int(port) if colon else None


def _quoted(name: str, value: Any) -> str:
    text = text_of(name, value)
    if text in ("", ".", ".."):
        raise PayloadError(f"{text!r} cannot be a part of a URL", name)
    return quote(text, safe="")


def _several(name: str, values: Iterable[str]) -> list[str]:
    if isinstance(values, str):
        raise ValueError(f"{name} must be a list, not one text")
    return list(values)


def _networks(values: Iterable[str]) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(each) for each in _several("private", values))
    except ValueError as error:
        raise ValueError(f"private: {error}") from None


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS or name.lower().startswith("x-treadle-"):
            raise ValueError(f"headers: {name!r} is not a header that can be chosen")
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"headers: {name} must be one line of ASCII text")
    return dict(headers)
