"""Behind a proxy: its own word counts, and nothing that a caller brought along."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from treadle import App
from treadle.core.errors import ConfigError
from treadle.web import Dashboard, tokens
from treadle.web.proxied import THIS_MACHINE, Proxied

from .wire import Wire

pytestmark = pytest.mark.anyio


async def seen(headers: list[tuple[str, str]], client: str | None = "127.0.0.1", **options: Any) -> tuple[Any, str]:
    """Client and scheme, as the app behind sees them."""
    found: dict[str, Any] = {}

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        found.update(scope)

    scope = {
        "type": "http",
        "scheme": "http",
        "client": None if client is None else (client, 1),
        "headers": [(name.encode(), value.encode("latin1")) for name, value in headers],
    }
    none: Any = None
    await Proxied(inner, **options)(scope, none, none)
    return (found["client"] or (None,))[0], found["scheme"]


def hops(*values: str) -> list[tuple[str, str]]:
    return [("x-forwarded-for", value) for value in values]


@pytest.mark.parametrize(
    ("values", "address"),
    [
        (["203.0.113.9"], "203.0.113.9"),
        (["6.6.6.6, 203.0.113.9"], "203.0.113.9"),  # what stands first was brought along
        (["6.6.6.6", "203.0.113.9"], "203.0.113.9"),
        (["203.0.113.9, 10.0.0.2"], "203.0.113.9"),  # another proxy of ours in between
        (["6.6.6.6, nonsense, 10.0.0.2"], "10.0.0.2"),
        (["nonsense"], "127.0.0.1"),
        ([""], "127.0.0.1"),
        (["10.0.0.7, 10.0.0.2"], "10.0.0.2"),  # all of them ours: the nearest
        (["203.0.113.9:4711"], "203.0.113.9"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["2001:db8::7"], "2001:db8::7"),
        (["::ffff:203.0.113.9"], "203.0.113.9"),
    ],
)
async def test_the_last_address_that_is_no_proxys_counts(values: list[str], address: str) -> None:
    assert (await seen(hops(*values), proxies=[*THIS_MACHINE, "10.0.0.0/8"]))[0] == address


async def test_a_stranger_is_not_believed() -> None:
    told = [*hops("203.0.113.9"), ("x-forwarded-proto", "https")]
    assert await seen(told, "198.51.100.4") == ("198.51.100.4", "http")
    assert await seen(told, "::1") == ("203.0.113.9", "https")
    assert await seen(told, "10.9.9.9", proxies=["10.0.0.0/8"]) == ("203.0.113.9", "https")
    assert await seen(told, "10.9.9.9", proxies=["10.0.0.2"]) == ("10.9.9.9", "http")
    assert await seen(told, "10.0.0.2", proxies=["10.0.0.2"]) == ("203.0.113.9", "https")
    assert await seen(told, None) == ("203.0.113.9", "https")  # by a unix socket
    assert (await seen([("x-forwarded-proto", "javascript")]))[1] == "http"


@pytest.mark.parametrize(
    "neighbour", ["10.9.9.9", "172.16.0.9", "192.168.1.9", "fd00::9", "fe80::9", "::ffff:10.9.9.9"]
)
async def test_a_neighbour_in_a_private_network_is_no_proxy(neighbour: str, caplog: pytest.LogCaptureFixture) -> None:
    """Unless it is named. Any private caller was believed, and so could come from a new address each time."""
    told = [*hops("203.0.113.9"), ("x-forwarded-proto", "https")]
    with caplog.at_level("WARNING", "treadle.web"):
        assert await seen(told, neighbour) == (neighbour, "http")
    assert f"name it: --proxy {neighbour}" in caplog.text


async def test_the_log_says_once_who_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    async def inner(scope: Any, receive: Any, send: Any) -> None:
        pass

    none: Any = None
    proxied = Proxied(inner)
    for n in range(3):
        headers = [(b"x-forwarded-for", b"203.0.113.9")]
        await proxied({"type": "http", "client": (f"10.0.0.{n}", 1), "headers": headers}, none, none)
        await proxied({"type": "http", "client": (f"10.0.0.{n}", 1), "headers": []}, none, none)
    assert len(caplog.records) == 1


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ConfigError, match="neither an address nor a network"):
        Proxied(lambda *_: None, ["example.com"])  # type: ignore[arg-type, return-value]
    Proxied(lambda *_: None, [*THIS_MACHINE, "192.0.2.7"])  # type: ignore[arg-type, return-value]


async def test_a_guesser_cannot_come_from_a_new_address_each_time() -> None:
    kept, token = tokens.make("ann", "admin")
    web = Dashboard(App("memory://"), access=tokens.Tokens([kept]), pages=False)
    async with httpx.AsyncClient(transport=Wire(Proxied(web)), base_url="http://localhost") as http:
        for n in range(10):
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": f"6.6.6.{n}, 203.0.113.9"}
            assert (await http.get("/api/v1/jobs", headers=headers)).status_code == 401
        headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": "6.6.6.99, 203.0.113.9"}
        assert (await http.get("/api/v1/jobs", headers=headers)).status_code == 429
        headers["X-Forwarded-For"] = "203.0.113.10"  # another one is not to blame
        assert (await http.get("/api/v1/jobs", headers=headers)).status_code == 401
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "6.6.6.99, 203.0.113.9"}
        assert (await http.get("/api/v1/jobs", headers=headers)).status_code == 200
    async with httpx.AsyncClient(transport=Wire(Proxied(web), client="10.0.0.9"), base_url="http://localhost") as http:
        for n in range(12):  # a neighbour is no proxy, whatever it says
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": f"6.6.6.{n}"}
            assert (await http.get("/api/v1/jobs", headers=headers)).status_code == (401 if n < 10 else 429)
