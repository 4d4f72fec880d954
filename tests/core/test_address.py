"""Which addresses are counted as one caller."""

from __future__ import annotations

import pytest

from treadle.core.address import group_of, is_this_host


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:c000:207", "192.0.2.7"),
        ("64:ff9b::192.0.2.7", "192.0.2.7"),
        ("64:ff9b:1::1", "64:ff9b:1::/64"),  # not the well-known prefix
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:DB8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("192.0.2.300", "192.0.2.300"),
        ("192.0.2.7:80", "192.0.2.7:80"),
        ("testclient", "testclient"),
        ("/run/treadle.sock", "/run/treadle.sock"),
    ],
)
def test_the_group_of_an_address(address: str, group: str) -> None:
    assert group_of(address) == group


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("64:ff9b::127.0.0.1", True),
        ("", True),  # a unix socket
        ("192.0.2.7", False),
        ("10.0.0.1", False),
        ("2001:db8::1", False),
        ("testclient", False),
    ],
)
def test_who_is_on_this_machine(address: str, here: bool) -> None:
    assert is_this_host(address) is here
