"""Which network addresses count as one caller.

Limits per caller (connections, requests under way, streams, wrong passwords) count by group, not by address. An IPv4
address is a group of its own. An IPv6 address is not: a single host is given a whole /64 and may use a new address for
every connection, so all addresses of a /64 are one group. IPv4 addresses written as IPv6 (by a socket for both
families, or by a translator) are what they stand for: otherwise all of IPv4 would be a single /64.

Whoever rents a /48 still has 65,536 groups: limits per group keep one host from shutting others out, and no more.
"""

from __future__ import annotations

import ipaddress
from typing import Final

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_LOW_32: Final = 0xFFFF_FFFF
_HOST_BITS: Final = 64


def group_of(address: str) -> str:
    """The group that an address is counted with. What is no address (an empty text, a socket's path) stays as it is.

    >>> group_of("192.0.2.7"), group_of("::ffff:192.0.2.7"), group_of("2001:db8:1:2:3:4:5:6")
    ('192.0.2.7', '192.0.2.7', '2001:db8:1:2::/64')
    """
    found = _parsed(address)
    if found is None:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return f"{ipaddress.IPv6Address(int(found) >> _HOST_BITS << _HOST_BITS)}/{_HOST_BITS}"


def is_this_host(address: str) -> bool:
    """Whether a caller is on this machine: a loopback address, or no address at all (a unix socket)."""
    found = _parsed(address)
    return not address if found is None else found.is_loopback


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, an IPv4 address where it only is written as IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return found.ipv4_mapped
        if found in _TRANSLATED:
            return ipaddress.IPv4Address(int(found) & _LOW_32)
    return found
