"""`treadle web`: the dashboard and the HTTP API, in a process of their own."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..config import LOOPBACK, Config, address, masked
from ..core.errors import ConfigError, StorageUnavailable
from ..runtime import loops
from . import target, unix_sockets
from .command import Invocation, verb
from .errors import DONE

if TYPE_CHECKING:
    from ..app import App
    from ..web.basic import Basic
    from ..web.dashboard import Dashboard
    from ..web.tokens import Tokens

OWN: Final = "me"


@verb(
    "web",
    "treadle web",
    "treadle web --token                     # asks for a token, and prints a link that has it",
    "treadle web --host 0.0.0.0 --token-file ~/.treadle/tokens --allow-host jobs.example.com --behind-proxy",
    "treadle web --read-only --port 9000",
    "treadle web --unix /run/treadle/web.sock  # for a proxy on this machine, and for curl --unix-socket",
)
@click.option("--host", help="The address to listen on. Default 127.0.0.1; any other needs a token.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Default 8181; 0 takes a free one.")
@click.option("--token", is_flag=True, help="Ask for a token; it is made now, and printed once.")
@click.option("--token-file", type=click.Path(dir_okay=False), help="Tokens made by `treadle tokens`.")
@click.option("--basic", metavar="USER[:ROLE]", help="Ask for this name and the password in TREADLE_WEB_PASSWORD.")
@click.option("--unix", type=click.Path(dir_okay=False), help="Listen on a unix socket that only you can open.")
@click.option("--read-only", is_flag=True, help="Show, and change nothing: not even the storage could.")
@click.option("--behind-proxy", is_flag=True, help="Trust forwarded scheme and address from a proxy on this machine.")
@click.option(
    "--proxy", "proxies", multiple=True, metavar="NETWORK", help="Trust this proxy instead: an address or a network."
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A host name to answer to, beside loopback.")
@click.option("--env", help="What this place is called.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Serve HTTPS with this certificate.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="And its key.")
def web(
    call: Invocation,
    host: str | None,
    port: int | None,
    token: bool,
    token_file: str | None,
    basic: str | None,
    unix: str | None,
    read_only: bool,
    behind_proxy: bool,
    proxies: tuple[str, ...],
    hosts: tuple[str, ...],
    env: str | None,
    tls_cert: str | None,
    tls_key: str | None,
) -> int:
    """Serve the dashboard and the HTTP API, on loopback by default. Ctrl-C ends it."""
    from ..web.proxied import THIS_MACHINE
    from ..web.server import server
    from . import logs

    trusted = proxies or (THIS_MACHINE if behind_proxy else ())
    if unix is not None and (host is not None or port is not None or tls_cert is not None):
        raise click.UsageError("--unix is a place of its own: without --host, --port and --tls-cert")
    if basic is not None and (token or token_file is not None):
        raise click.UsageError("--basic or tokens, not both")
    config = call.config(
        env=env, web_port=port, web_token_file=token_file, web_basic=basic, web_read_only=read_only or None
    )
    if "web" in config.disable:
        raise ConfigError(f"the dashboard is switched off (disable, {config.sources['disable']})")
    logs.configure(config.log_level, config.log_format)
    where = LOOPBACK if unix is not None else host or config.web_host
    access, link = access_of(config, where, token, is_private=bool(tls_cert or trusted))
    app = app_of(config, config.web_read_only)
    made = dashboard(app, config, access, hosts=(*hosts, *config.web_hosts, *_own_name(where)))
    listening = listen(where, config.web_port) if unix is None else unix_sockets.listen(Path(unix))
    others = _other_loopback(call, listening) if unix is None and where == LOOPBACK and host is None else []
    scheme = "https" if tls_cert else "http"
    if not is_loopback(where) and not tls_cert and not trusted:
        call.out.warn("plain HTTP beyond this machine: tokens can be read on the way; use --tls-cert or --behind-proxy")
    if behind_proxy and not proxies and not is_loopback(where):
        call.out.warn("--behind-proxy trusts a proxy on this machine alone; one elsewhere is named by --proxy NETWORK")
    url = f"{scheme}://{shown(where, listening.getsockname()[1])}" if unix is None else "http://localhost"
    if call.out.as_json:
        at = {} if unix is None else {"unix": unix}
        call.out.data({"url": url, **at, "login": None if link is None else f"{url}/login#{link}"})
    else:
        if unix is not None:
            call.out.line(f"curl --unix-socket {unix} {url}/api/v1/queues")
        if unix is None or link is not None:
            call.out.line(f"{url}/login#{link}" if link is not None else url)
        call.out.say(f"{masked(app.url)}{' (read-only)' if config.web_read_only else ''}; Ctrl-C ends it")
    serving = server(made, where, config.web_port, proxies=trusted, cert=tls_cert, key=tls_key)

    async def run() -> None:
        if created := target.creation(app.url):
            call.out.say(created)
        try:
            await app.open()
            if not config.web_read_only and not await app.storage.is_writable():
                call.out.warn("the storage can be read and not written: nothing can be changed from here")
        except StorageUnavailable as error:
            call.out.warn(f"{error}; pages say so until it is there")
        try:
            await serving.serve(sockets=[listening, *others])
        finally:
            await app.close()
            if unix is not None:
                unix_sockets.remove(listening, Path(unix))

    loops.calm_collector()  # or every tenth page waits for it, with all that is imported here
    asyncio.run(run())
    return DONE


def beside(call: Invocation, app: App, config: Config, place: str) -> None:
    """The dashboard in a worker's own process, in a thread with a loop of its own."""
    from ..web.server import Beside, server

    try:
        host, port = address(place) if place else (config.web_host, config.web_port)
    except ValueError as error:
        raise ConfigError(f"--web {error}") from None
    access, _ = access_of(config, host, wants_token=False)
    made = dashboard(app, config, access, hosts=(*config.web_hosts, *_own_name(host)))
    listening = listen(host, port)
    Beside(server(made, host, port), [listening]).start()
    call.out.say(f"dashboard on http://{shown(host, listening.getsockname()[1])}")


def access_of(
    config: Config, host: str, wants_token: bool, *, is_private: bool = False
) -> tuple[Tokens | Basic | None, str | None]:
    """Who may enter: whoever has a token or the password, or on loopback everybody. And the token, if one is made now.
    `is_private`: nobody reads what is on the way."""
    if config.web_basic is not None:
        from ..web.basic import Basic, parsed, password_of

        if config.web_token_file is not None or wants_token:
            raise ConfigError("web: ask for a password (web.basic) or for tokens, not for both")
        if not is_loopback(host) and not is_private:
            raise ConfigError(f"{host} can be reached from elsewhere: a password needs --tls-cert or --behind-proxy")
        user, role = parsed(config.web_basic)
        return Basic(user, password_of(config.web_password, config.web_password_file), role), None
    if config.web_token_file is None and not wants_token:
        if is_loopback(host):
            return None, None
        raise ConfigError(
            f"{host} can be reached from elsewhere: say who may enter, with --token or --token-file "
            "(`treadle tokens add NAME` makes one), or with --basic"
        )
    from ..web import tokens

    if config.web_token_file is not None:
        path = Path(config.web_token_file).expanduser()
        if wants_token and not path.exists():
            kept, token = tokens.make(OWN, "admin")
            tokens.write(path, [kept])
            return tokens.Tokens(path=path), token
        return tokens.Tokens(path=path), None
    kept, token = tokens.make(OWN, "admin")
    return tokens.Tokens([kept]), token


def dashboard(app: App, config: Config, access: Tokens | Basic | None, *, hosts: tuple[str, ...] = ()) -> Dashboard:
    from ..web.dashboard import Dashboard

    return Dashboard(
        app,
        access="open" if access is None else access,
        redact=config.web_redact,
        read_only=config.web_read_only,
        env=config.env,
        color=config.color,
        hosts=hosts,
    )


def app_of(config: Config, read_only: bool) -> App:
    """The App with its tasks, if there is one to be found; else one that knows nothing but the storage."""
    from ..app import App

    if not read_only:
        found = target.load_app(config) if config.is_set("app") else target.discover(config)
        if found is not None:
            found.allow_read_only()
            return found
    url = target.url_of(config)
    target.must_exist(url)
    return App(url, read_only=read_only or "auto")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _own_name(host: str) -> tuple[str, ...]:
    """An address that was chosen is one to be asked by; "any address" is none."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104
        return ()
    return (f"[{host}]" if ":" in host else host,)


def shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _other_loopback(call: Invocation, listening: socket.socket) -> list[socket.socket]:
    """Browsers try ::1 first for "localhost": who else listens there would be taken for us."""
    port = listening.getsockname()[1]
    try:
        made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return []
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("::1", port))
        made.listen(128)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            call.out.warn(f"somebody else listens on [::1]:{port}: ask for 127.0.0.1, not for localhost")
        return []  # as a rule, there is no IPv6 here
    made.setblocking(False)
    return [made]


def listen(host: str, port: int) -> socket.socket:
    """The socket, bound now: whoever is told the URL can use it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise ConfigError(f"web: cannot listen on {shown(host, port)}: {error.strerror}") from None
    made.setblocking(False)
    return made
