"""Behind a proxy: what it says of scheme and address counts, and only what *it* says.

Every proxy writes the address it was called from at the end of `X-Forwarded-For`; what stands before was brought along
and may be anybody's invention. So the last address counts that is not a proxy's. Whoever believed the first one would
let a guesser of tokens come from a new address each time.

Who is a proxy must be known just as well. Unless others are named, only this machine is (loopback, and whoever opens a
unix socket): in a private network a neighbour would write whatever address it likes. Its headers are not believed, and
the log says so once.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from ..core.errors import ConfigError

log = logging.getLogger("treadle.web")

THIS_MACHINE: Final = ("127.0.0.0/8", "::1/128")


class Proxied:
    """Around the app of a server. `proxies` are addresses and networks; who calls by a unix socket is one, too."""

    def __init__(self, inner: ASGIApp, proxies: Iterable[str] = THIS_MACHINE) -> None:
        self._inner = inner
        self._networks = [_network(each) for each in proxies]
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        said = _said(scope) if scope["type"] == "http" else {}
        if said and not (client is None or not client[0] or self._is_proxy(client[0])):
            self._warn_of(client[0])
        elif said:
            if (scheme := said.get(b"x-forwarded-proto", "").strip().lower()) in ("http", "https"):
                scope["scheme"] = scheme
            if address := self._caller(said.get(b"x-forwarded-for", "")):
                scope["client"] = (address, 0)
        await self._inner(scope, receive, send)

    def _warn_of(self, host: str) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        log.warning(
            "%s sends X-Forwarded headers and is not believed: it is none of the proxies (%s); if it is one, "
            "name it: --proxy %s",
            ascii(host)[1:-1], ", ".join(map(str, self._networks)), ascii(host)[1:-1],
        )  # fmt: skip

    def _caller(self, hops: str) -> str:
        found = ""
        for hop in reversed([each.strip() for each in hops.split(",")]):
            if (address := _address(hop)) is None:
                return found  # nobody's address: what stands before it proves nothing
            if not self._is_proxy(str(address)):
                return str(address)
            found = found or str(address)
        return found

    def _is_proxy(self, host: str) -> bool:
        address = _address(host)
        return address is not None and any(address in network for network in self._networks)


def _said(scope: Scope) -> dict[bytes, str]:
    """A header that comes several times is one list."""
    found: dict[bytes, str] = {}
    for name, value in scope["headers"]:
        if name in (b"x-forwarded-for", b"x-forwarded-proto"):
            text = value.decode("latin1")
            found[name] = f"{found[name]},{text}" if name in found else text
    return found


def _address(hop: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """`192.0.2.7`, `192.0.2.7:1234`, `2001:db8::7`, `[2001:db8::7]:1234`."""
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        found = ipaddress.ip_address(hop)
    except ValueError:
        return None
    return (getattr(found, "ipv4_mapped", None) or found) if found.version == 6 else found


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"--proxy: {text} is neither an address nor a network such as 192.0.2.0/24") from None
