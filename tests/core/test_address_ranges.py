"""Every row of the registries of special-purpose addresses: its ends, and what lies beside them. Judged offline."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core import address_ranges
from treadle.core.address_ranges import leads_to, may_connect, read, why_not_public

# Written apart from the table that is tested, and compared row by row with a copy of both registries of July 2026. With
# their rows: multicast, what was special once, and the ends of what has been given out. The second and third field say
# whether the address before the first and the one behind the last are public.
REGISTRIES = """
0.0.0.0/8           -    yes
0.0.0.0/32          -    no
10.0.0.0/8          yes  yes
100.64.0.0/10       yes  yes
127.0.0.0/8         yes  yes
169.254.0.0/16      yes  yes
172.16.0.0/12       yes  yes
192.0.0.0/24        yes  yes
192.0.0.0/29        yes  no
192.0.0.8/32        no   no
192.0.0.9/32        no   no
192.0.0.10/32       no   no
192.0.0.170/32      no   no
192.0.0.171/32      no   no
192.0.2.0/24        yes  yes
192.31.196.0/24     yes  yes
192.52.193.0/24     yes  yes
192.88.99.0/24      yes  yes
192.88.99.2/32      no   no
192.168.0.0/16      yes  yes
192.175.48.0/24     yes  yes
198.18.0.0/15       yes  yes
198.51.100.0/24     yes  yes
203.0.113.0/24      yes  yes
224.0.0.0/4         yes  no
240.0.0.0/4         no   -
255.255.255.255/32  no   -
::/128              -    no
::1/128             no   no
::/96               -    no
::ffff:0:0:0/96     no   no
64:ff9b:1::/48      no   no
100::/64            no   no
100:0:0:1::/64      no   no
2001::/23           yes  yes
2001::/32           yes  no
2001:1::1/128       no   no
2001:1::2/128       no   no
2001:1::3/128       no   no
2001:2::/48         no   no
2001:3::/32         no   no
2001:4:112::/48     no   no
2001:10::/28        no   no
2001:20::/28        no   no
2001:30::/28        no   no
2001:db8::/32       yes  yes
2002::/16           yes  yes
2620:4f:8000::/48   yes  yes
3ffe::/16           yes  no
3fff::/20           no   yes
5f00::/16           no   no
fc00::/7            no   no
fe80::/10           no   no
fec0::/10           no   no
ff00::/8            no   -
4000::/2            yes  no
::/3                -    yes
"""
ROWS = [tuple(line.split()) for line in REGISTRIES.strip().splitlines()]


@pytest.mark.parametrize(("network", "before", "after"), ROWS, ids=[row[0] for row in ROWS])
def test_a_special_range_is_refused_from_its_first_address_to_its_last(network: str, before: str, after: str) -> None:
    row = ipaddress.ip_network(network)
    whole = 1 << row.max_prefixlen
    make = ipaddress.IPv4Address if row.version == 4 else ipaddress.IPv6Address
    first, last = int(row.network_address), int(row.broadcast_address)
    for number in {first, last, (first + last) // 2}:
        if network != "::/3":  # it holds the two ranges that are judged by what is in them
            assert why_not_public(str(make(number))) is not None, make(number)
    for expected, number in ((before, first - 1), (after, last + 1)):
        assert (expected == "-") == (not 0 <= number < whole), "the table has a wrong row"
        if expected != "-":
            assert (why_not_public(str(make(number))) is None) == (expected != "no"), make(number)


def test_the_table_has_every_row_of_the_registries() -> None:
    ours = {row for row, _ in (*address_ranges.SPECIAL_IPV4, *address_ranges.SPECIAL_IPV6)}
    assert {row for row, _, _ in ROWS} - ours == {"::ffff:0:0:0/96", "4000::/2", "::/3"}  # refused: not given out
    assert ours - {row for row, _, _ in ROWS} == set()


@pytest.mark.parametrize(("network", "before", "after"), ROWS[:27], ids=[row[0] for row in ROWS[:27]])
@pytest.mark.parametrize("wrapping", ["::ffff:0:0", "64:ff9b::"])
def test_a_wrapped_address_is_judged_by_what_is_in_it(network: str, before: str, after: str, wrapping: str) -> None:
    row, base = ipaddress.ip_network(network), int(ipaddress.IPv6Address(wrapping))
    for number in (int(row.network_address), int(row.broadcast_address)):
        assert why_not_public(str(ipaddress.IPv6Address(base + number))) == why_not_public(
            str(ipaddress.IPv4Address(number))
        )
    assert why_not_public(str(ipaddress.IPv6Address(base + int(ipaddress.IPv4Address("1.1.1.1"))))) is None


def test_a_wrapping_ends_where_its_range_ends() -> None:
    for number in (0xFFFF << 32) - 1, (0x10000 << 32):
        assert why_not_public(str(ipaddress.IPv6Address(number))) is not None
    base = int(ipaddress.IPv6Address("64:ff9b::"))
    for number in (base - 1, base + (1 << 32) + 0x01010101):
        assert why_not_public(str(ipaddress.IPv6Address(number))) is not None


@pytest.mark.parametrize("inner", ["8.8.8.8", "127.0.0.1", "10.0.0.1"])
def test_other_wrappings_are_refused_whatever_is_in_them(inner: str) -> None:
    number = int(ipaddress.IPv4Address(inner))
    wrapped = {
        "6to4": (0x2002 << 112) | (number << 80) | 1,
        "Teredo": (0x20010000 << 96) | (number ^ 0xFFFFFFFF),
        "IPv4-compatible": number,
        "local NAT64": (0x0064_FF9B_0001 << 80) | number,
    }
    assert {name: why_not_public(str(ipaddress.IPv6Address(each))) for name, each in wrapped.items()} == {
        name: name for name in wrapped
    }


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "[::1]", "1.1.1.1/32", "١.1.1.1",
        " 1.1.1.1", "1.1.1.1\n", "::ffff:1.1.1", "2001:4860:4860::8888%eth0", "1.1.1.1%x", "::ffff:1.1.1.1%1",
    ],
)  # fmt: skip
def test_what_is_no_plain_address_is_never_public(text: str) -> None:
    assert why_not_public(text) is not None
    assert not may_connect(text, ())


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450::1", "64:ff9b::101:101", "::ffff:1.1.1.1"]
)
def test_a_public_address_is_public(text: str) -> None:
    assert why_not_public(text) is None
    assert may_connect(text, ())


def test_a_network_that_was_allowed_may_be_asked_and_nothing_beside_it() -> None:
    allowed = [ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fe80::/64")]
    for address in ("10.1.0.1", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fe80::1", "fe80::1%eth0"):
        assert may_connect(address, allowed), address
    for address in ("10.2.0.1", "::ffff:10.2.0.1", "2002:a01:203::1", "::10.1.2.3", "fe80:0:0:1::1", "127.0.0.1", "x"):
        assert not may_connect(address, allowed), address


def test_a_narrow_row_says_more_than_a_wide_one() -> None:
    assert why_not_public("192.0.0.170") == "NAT64 discovery"
    assert why_not_public("2001:1::2") == "TURN anycast"
    assert why_not_public("1fff::1") == "not given out"


@given(st.ip_addresses())
def test_what_the_interpreter_calls_private_is_never_public(address: ipaddress.IPv4Address) -> None:
    """Its table is another one, and changes; but all of its releases know these."""
    found = read(str(address))
    assert found == (address, False)
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        assert why_not_public(str(address)) is not None or leads_to(address) != address


def test_no_answer_comes_from_the_interpreters_own_table() -> None:
    """`is_global` differs between releases: 192.0.0.9 was private in 3.11.0 and global in 3.11.9."""
    for path in ("core/address_ranges.py", "tasks/external/http.py", "executors/http.py"):
        source = (Path(address_ranges.__file__).parents[1] / path).read_text()
        assert "is_global" not in source.replace("`ipaddress.is_global`", "")
        assert "is_private" not in source
