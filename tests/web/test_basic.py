"""A name and a password: compared without a tell, limited, and no proof of where a request comes from."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path

import httpx
import pytest

from treadle import App
from treadle.core.errors import ConfigError
from treadle.web import Dashboard
from treadle.web import basic as module
from treadle.web.basic import Basic, parsed, password_of

from .wire import Wire
from .world import SAME, client

pytestmark = pytest.mark.anyio

PASSWORD = "correct horse ü"


def sent(user: str = "ann", password: str = PASSWORD, kind: str = "Basic") -> dict[str, str]:
    return {"Authorization": f"{kind} {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def served(clock: Clock, role: str = "admin", pages: bool = False) -> httpx.AsyncClient:
    return client(Dashboard(App("memory://"), access=Basic("ann", PASSWORD, role, clock=clock), pages=pages))


class Everywhere:
    """One dashboard, asked from many addresses, with cookies or without."""

    def __init__(self, clock: Clock) -> None:
        self._web = Dashboard(App("memory://"), access=Basic("ann", PASSWORD, clock=clock), pages=False)

    async def ask(self, address: str, password: str = PASSWORD, cookie: str = "") -> httpx.Response:
        transport = Wire(self._web, client=address)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            headers = sent(password=password) | ({"Cookie": cookie} if cookie else {})
            return await http.get("/api/v1/capabilities", headers=headers)

    async def guess(self, address: str, times: int = 1, cookie: str = "") -> list[int]:
        return [(await self.ask(address, "wrong", cookie)).status_code for _ in range(times)]


def cookie_of(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


async def test_who_knows_both_enters_in_the_role(clock: Clock) -> None:
    async with served(clock, "viewer") as http:
        found = (await http.get("/api/v1/capabilities", headers=sent())).json()
        assert (found["user"], found["role"]) == ("ann", "viewer")
        assert (await http.post("/api/v1/queues/x/pause", headers={**sent(), **SAME}, json={})).status_code == 403
        for kind in ("basic", "BASIC"):
            assert (await http.get("/api/v1/jobs", headers=sent(kind=kind))).status_code == 200


async def test_all_else_is_asked_for_it(clock: Clock) -> None:
    async with served(clock) as http:
        for headers in (
            {},
            sent(password="wrong horse ü"),
            sent("bob"),
            sent("", ""),
            {"Authorization": "Basic"},
            {"Authorization": "Basic !!!"},
            {"Authorization": f"Bearer {PASSWORD.encode().hex()}"},
        ):
            answer = await http.get("/api/v1/jobs", headers=headers)
            assert answer.status_code == 401, headers
            assert answer.headers["www-authenticate"].startswith("Basic ")
        assert (await http.get("/healthz")).status_code == 200


async def test_a_page_asks_too_and_goes_nowhere_else(clock: Clock) -> None:
    async with served(clock, pages=True) as http:
        answer = await http.get("/")
        assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Basic ")
        assert (await http.get("/", headers=sent())).status_code == 200


async def test_the_password_proves_no_origin(clock: Clock) -> None:
    """A browser sends it unasked, for another site's page too."""
    async with served(clock) as http:
        path = "/api/v1/queues/x/pause"
        assert (await http.post(path, headers=sent(), json={})).status_code == 403
        foreign = {"Sec-Fetch-Site": "cross-site"}
        assert (await http.post(path, headers={**sent(), **foreign}, json={})).status_code == 403
        assert (await http.post(path, headers={**sent(), **SAME}, json={})).status_code == 200


async def test_ten_wrong_tries_a_minute(clock: Clock) -> None:
    async with served(clock) as http:
        for _ in range(10):
            assert (await http.get("/api/v1/jobs", headers=sent(password="x"))).status_code == 401
        limited = await http.get("/api/v1/jobs", headers=sent())  # a right one would tell which it is
        assert limited.status_code == 429 and int(limited.headers["retry-after"]) > 0
        clock.now += 61
        assert (await http.get("/api/v1/jobs", headers=sent())).status_code == 200


async def test_a_browser_that_was_right_once_is_not_locked_out_from_its_own_address(clock: Clock) -> None:
    """Behind NAT or a proxy somebody else may guess with the same address."""
    web = Everywhere(clock)
    first = await web.ask("192.0.2.1")
    assert first.status_code == 200
    known = cookie_of(first)
    assert "HttpOnly" in first.headers["set-cookie"] and "SameSite=strict" in first.headers["set-cookie"]
    assert await web.guess("192.0.2.1", 12) == [401] * 10 + [429] * 2
    assert (await web.ask("192.0.2.1")).status_code == 429  # without its cookie it may be anybody
    again = await web.ask("192.0.2.1", cookie=known)
    assert again.status_code == 200 and "set-cookie" not in again.headers
    assert (await web.ask("198.51.100.9", cookie=known)).status_code == 200
    # The cookie is no password, and its owner has no more tries than others.
    assert await web.guess("192.0.2.1", 12, known) == [401] * 10 + [429] * 2


async def test_a_cookie_that_was_not_given_here_is_none(clock: Clock) -> None:
    web = Everywhere(clock)
    name, _, proof = cookie_of(await web.ask("192.0.2.1")).partition(".")
    await web.guess("192.0.2.1", 10)
    for forged in (
        name,
        f"{name}.",
        f"{name}x.{proof}",
        f"{name}.{proof[:-1]}",
        "treadle-known=.",
    ):
        assert (await web.ask("192.0.2.1", cookie=forged)).status_code == 429, forged


async def test_many_addresses_have_no_more_tries_than_sixty_a_minute(clock: Clock) -> None:
    web = Everywhere(clock)
    heard = sum([(await web.guess(f"2001:db8:{n:x}::1"))[0] == 401 for n in range(300)])
    assert heard == 60
    assert (await web.ask("2001:db8:fff::1")).status_code == 429  # not compared: it would tell
    clock.now += 61
    assert (await web.ask("2001:db8:fff::1")).status_code == 200


async def test_who_was_right_before_is_not_locked_out_by_many_addresses(clock: Clock) -> None:
    web = Everywhere(clock)
    assert (await web.ask("192.0.2.1")).status_code == 200  # a program, which keeps no cookies
    clock.now += 3600
    for n in range(100):
        await web.guess(f"2001:db8:{n:x}::1")
    assert (await web.ask("192.0.2.2")).status_code == 429
    assert (await web.ask("192.0.2.1")).status_code == 200
    clock.now += 86_401
    for n in range(100):
        await web.guess(f"2001:db8:{n:x}::1")
    assert (await web.ask("192.0.2.1")).status_code == 429  # that was too long ago


async def test_it_is_compared_as_a_whole_and_in_constant_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: set[tuple[int, int]] = set()

    def compare(given: bytes, kept: bytes) -> bool:
        lengths.add((len(given), len(kept)))
        return hmac.compare_digest(given, kept)

    monkeypatch.setattr(module, "hmac", type("Hmac", (), {"compare_digest": staticmethod(compare)}))
    async with served(clock) as http:
        for headers in (sent(), sent("x" * 500), sent("", ""), {"Authorization": "Basic !"}):
            await http.get("/api/v1/jobs", headers=headers)
    assert lengths == {(64, 64)}


def test_what_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fewer than 12"):
        Basic("ann", "short")
    with pytest.raises(ConfigError, match="no role"):
        Basic("ann", PASSWORD, "root")
    for user in ("", "a:b", "a\nb"):
        with pytest.raises(ConfigError, match="user's name"):
            Basic(user, PASSWORD)
    assert (parsed("ann"), parsed("ann:viewer")) == (("ann", "admin"), ("ann", "viewer"))
    with pytest.raises(ConfigError, match="never a password") as told:
        parsed("ann:hunter2hunter2")
    assert "hunter2" not in str(told.value)


def test_where_the_password_comes_from(tmp_path: Path) -> None:
    assert password_of("given", None) == "given"
    with pytest.raises(ConfigError, match="TREADLE_WEB_PASSWORD"):
        password_of(None, None)
    file = tmp_path / "password"
    with pytest.raises(ConfigError, match="cannot be read"):
        password_of(None, str(file))
    file.write_text(f"{PASSWORD}\n")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        password_of(None, str(file))
    file.chmod(0o600)
    assert password_of(None, str(file)) == PASSWORD
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not text"):
        password_of(None, str(file))
