"""Which addresses belong to the public internet, by a table of our own.

A service that a job may choose (`allow=["*"]`) must not lead into the worker's own network. `ipaddress.is_global`
answers that question differently in different releases of Python; this table does not change with the interpreter. It
holds every row of the two registries of special-purpose addresses that IANA keeps (RFC 6890), multicast, and what was
special once (site-local, 6bone). No web service lives in any of these rows, so all of them are refused, also those few
that the registries call globally reachable.

In IPv6 the table is turned round: only 2000::/3 has been given out, and whatever lies outside is refused.

Two ranges of IPv6 only wrap an address of IPv4, and a connection to them ends there: IPv4-mapped (::ffff:0:0/96) and
the well-known prefix of NAT64 (64:ff9b::/96), which is how a host without IPv4 reaches the public one. Both are judged
by what is in them. Other wrappings (6to4, Teredo, IPv4-compatible, the local prefix of NAT64) are refused whatever is
in them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import cache
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

SPECIAL_IPV4: Final[tuple[tuple[str, str], ...]] = (
    ("0.0.0.0/8", "this network"),
    ("0.0.0.0/32", "this host"),
    ("10.0.0.0/8", "private use"),
    ("100.64.0.0/10", "shared address space"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private use"),
    ("192.0.0.0/24", "protocol assignments"),
    ("192.0.0.0/29", "service continuity"),
    ("192.0.0.8/32", "dummy address"),
    ("192.0.0.9/32", "port control anycast"),
    ("192.0.0.10/32", "TURN anycast"),
    ("192.0.0.170/32", "NAT64 discovery"),
    ("192.0.0.171/32", "NAT64 discovery"),
    ("192.0.2.0/24", "documentation"),
    ("192.31.196.0/24", "AS112"),
    ("192.52.193.0/24", "multicast tunnels (AMT)"),
    ("192.88.99.0/24", "6to4 relay"),
    ("192.88.99.2/32", "6a44 relay"),
    ("192.168.0.0/16", "private use"),
    ("192.175.48.0/24", "AS112"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("255.255.255.255/32", "broadcast"),
)
SPECIAL_IPV6: Final[tuple[tuple[str, str], ...]] = (
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::/96", "IPv4-compatible"),
    ("64:ff9b:1::/48", "local NAT64"),
    ("100::/64", "discard-only"),
    ("100:0:0:1::/64", "dummy prefix"),
    ("2001::/23", "protocol assignments"),
    ("2001::/32", "Teredo"),
    ("2001:1::1/128", "port control anycast"),
    ("2001:1::2/128", "TURN anycast"),
    ("2001:1::3/128", "service registration anycast"),
    ("2001:2::/48", "benchmarking"),
    ("2001:3::/32", "multicast tunnels (AMT)"),
    ("2001:4:112::/48", "AS112"),
    ("2001:10::/28", "ORCHID"),
    ("2001:20::/28", "ORCHIDv2"),
    ("2001:30::/28", "drone identifiers"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("2620:4f:8000::/48", "AS112"),
    ("3ffe::/16", "6bone"),
    ("3fff::/20", "documentation"),
    ("5f00::/16", "segment routing"),
    ("fc00::/7", "unique local"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
GIVEN_OUT: Final = "2000::/3"
MAPPED: Final = "::ffff:0:0/96"
NAT64: Final = "64:ff9b::/96"


def read(address: str) -> tuple[Address, bool] | None:
    """An address, without its zone, and whether it had one (`fe80::1%eth0`). None: it is no address."""
    text, percent, _ = address.partition("%")
    try:
        return ipaddress.ip_address(text), bool(percent)
    except ValueError:
        return None


def leads_to(address: Address) -> Address:
    """The address at the far end: the IPv4 address that is wrapped in one of IPv6, or the address itself."""
    if isinstance(address, ipaddress.IPv6Address) and any(address in each for each in _wrappings()):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def why_not_public(address: str) -> str | None:
    """Why an address is not on the public internet, in a word or two. None: it is.

    >>> why_not_public("169.254.169.254")
    'link-local'
    >>> why_not_public("::ffff:127.0.0.1")
    'loopback'
    >>> why_not_public("1.1.1.1")
    """
    found = read(address)
    if found is None:
        return "not an address"
    if found[1]:
        return "of one link"  # a zone says on which interface: no public address needs that
    far = leads_to(found[0])
    # The narrowest of the rows that fit says most.
    rows = [(network.prefixlen, name) for network, name in _special(far.version) if far in network]
    if rows:
        return max(rows)[1]
    if isinstance(far, ipaddress.IPv6Address) and far not in _given_out():
        return "not given out"
    return None


def may_connect(address: str, allowed: Iterable[Network]) -> bool:
    """Whether an address is public, or in one of the networks that were allowed, by itself or by what it leads to."""
    found = read(address)
    if found is None:
        return False
    every = {found[0], leads_to(found[0])}
    return (
        any(each.version == network.version and each in network for network in allowed for each in every)
        or why_not_public(address) is None
    )


@cache
def _special(version: int) -> tuple[tuple[Network, str], ...]:
    rows = SPECIAL_IPV4 if version == 4 else SPECIAL_IPV6
    return tuple((ipaddress.ip_network(network), name) for network, name in rows)


@cache
def _wrappings() -> tuple[ipaddress.IPv6Network, ...]:
    return ipaddress.IPv6Network(MAPPED), ipaddress.IPv6Network(NAT64)


@cache
def _given_out() -> ipaddress.IPv6Network:
    return ipaddress.IPv6Network(GIVEN_OUT)
