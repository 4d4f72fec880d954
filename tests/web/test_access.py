"""Who may enter: roles, tokens, the login, and filters that must not tell what one may not see."""

from __future__ import annotations

import re
import stat
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from treadle import App
from treadle.core.errors import ConfigError
from treadle.web import Access, Dashboard
from treadle.web import tokens as keeping
from treadle.web.access import ACTIONS, ROLES, host_of
from treadle.web.tokens import Tokens, make

from .wire import Wire
from .world import CANARY, SAME, World, client

pytestmark = pytest.mark.anyio


class Now:
    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at


def test_roles_grow() -> None:
    viewer, payload, operator, admin = ROLES.values()
    assert viewer < payload < operator < admin == set(ACTIONS)
    assert "enqueue" not in operator and "delete" not in operator and "stop" not in operator


def test_an_access_of_single_actions() -> None:
    some = Access("bob", {"see", "pause"})
    assert some.may("pause") and not some.may("resume") and some.role == "custom"
    with pytest.raises(ConfigError, match="no action"):
        Access("bob", {"fly"})
    with pytest.raises(ConfigError, match="no role"):
        Access("bob", "king")


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("localhost:8181", "localhost"),
        ("LOCALHOST", "localhost"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("a.b.", "a.b"),
        ("evil.com:localhost", "evil.com:localhost"),
        (":80", ":80"),
    ],
)
def test_the_host_without_its_port(given: str, host: str) -> None:
    assert host_of(given) == host


async def test_an_async_access_function_and_one_that_answers_nonsense() -> None:
    async def later(request: Request) -> Access | None:
        return Access("ann", "viewer") if request.headers.get("x") else None

    app = App("memory://")
    async with app, client(Dashboard(app, access=later, pages=False)) as http:
        assert (await http.get("/api/v1/capabilities", headers={"x": "1"})).json()["user"] == "ann"
        assert (await http.get("/api/v1/capabilities")).status_code == 401
    nonsense: Any = lambda request: "admin"  # noqa: E731
    async with app, client(Dashboard(app, access=nonsense, pages=False)) as http:
        assert (await http.get("/api/v1/capabilities")).status_code == 401


async def test_what_a_custom_set_may_do_is_all_it_may_do() -> None:
    app = App("memory://")
    web = Dashboard(app, access=lambda request: Access("bob", {"see", "pause"}), pages=False)
    async with app, client(web) as http:
        proof = {"Sec-Fetch-Site": "same-origin"}
        assert (await http.post("/api/v1/queues/x/pause", headers=proof)).status_code == 200
        assert (await http.post("/api/v1/queues/x/resume", headers=proof)).status_code == 403
        shown = (await http.get("/api/v1/capabilities")).json()
        assert shown["actions"] == ["pause", "see"]


@pytest.mark.parametrize(
    ("filter_text", "viewer", "admin"),
    [
        ("args.name:a*", 403, 200),
        ("-args.name:a*", 403, 200),
        ("meta.tenant:acme", 403, 200),
        ("result.x:1", 403, 200),
        (f"args.password:{CANARY[:4]}*", 403, 403),
        ("meta.api_key:*", 403, 403),
        ("args.user.token.value:x", 403, 403),
        ("state:failed", 200, 200),
    ],
)
async def test_a_filter_is_no_way_to_what_one_may_not_see(
    world: World, filter_text: str, viewer: int, admin: int
) -> None:
    for role, status in (("viewer", viewer), ("admin", admin)):
        for path in ("/jobs", "/counts"):
            assert (await world.get(path, role, params={"filter": filter_text})).status_code == status
        wish = {"act": "cancel", "filter": filter_text}
        assert (await world.post("/operations/preview", wish, role)).status_code == status


async def test_an_operation_needs_the_right_to_its_act(world: World) -> None:
    for act, role, status in (
        ("cancel", "viewer", 403),
        ("delete", "operator", 403),
        ("revive", "viewer+payload", 403),
        ("cancel", "operator", 202),
    ):
        answer = await world.post("/operations", {"act": act, "filter": "state:scheduled"}, role)
        assert answer.status_code == status, (act, role)


async def test_patterns_of_ones_own_are_redacted(tmp_path: Path) -> None:
    from .world import world_on

    async with world_on(tmp_path / "x.db", filled=False, redact=("iban", "card.*")) as world:
        args = {"iban": "DE12", "card": {"number": "4111", "of": "x"}, "free": "x"}
        made = await world.app.enqueue("other", args)
        assert (await world.get(f"/jobs/{made.id}")).json()["args"] == {
            "iban": "***", "card": {"number": "***", "of": "***"}, "free": "x",
        }  # fmt: skip


# Tokens --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def now() -> Now:
    return Now()


def served(tokens: Tokens, address: str = "10.0.0.9", scheme: str = "http", root: str = "") -> httpx.AsyncClient:
    web = Dashboard(App("memory://"), access=tokens, pages=False)
    return httpx.AsyncClient(transport=Wire(web, root, address), base_url=f"{scheme}://localhost")


async def test_a_bearer_token_has_its_role() -> None:
    kept, token = make("ci", "operator")
    async with served(Tokens([kept])) as http:
        bearer = {"Authorization": f"Bearer {token}"}
        seen = (await http.get("/api/v1/capabilities", headers=bearer)).json()
        assert (seen["user"], seen["role"]) == ("ci", "operator")
        assert (await http.post("/api/v1/queues/x/pause", headers=bearer)).status_code == 200  # it is its own proof
        assert (await http.post("/api/v1/jobs", json={"task": "x"}, headers=bearer)).status_code == 403
        for wrong in ("Bearer nonsense", f"Basic {token}", f"Bearer {token}x", "Bearer"):
            answer = await http.get("/api/v1/capabilities", headers={"Authorization": wrong})
            assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")


def test_a_token_has_256_bits_and_is_kept_as_a_hash(tmp_path: Path) -> None:
    kept, token = make("ann", "viewer", expires=1_900_000_000.0)
    assert len(token) >= 4 + 43 and token not in repr(kept)
    path = tmp_path / "sub" / "tokens"
    keeping.write(path, [kept])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and token not in path.read_text()
    assert keeping.read(path) == (kept,)
    assert [each.name for each in path.parent.iterdir()] == ["tokens"]


@pytest.mark.parametrize(
    "line",
    ["ann", "ann king " + "0" * 64 + " -", "ann viewer 00 -", "ann viewer " + "0" * 64 + " soon"],
)
def test_a_file_that_cannot_be_read_lets_nobody_in(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(line)
    with pytest.raises(ConfigError):
        Tokens(path=path)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    keeping.write(path, [make("ann", "viewer")[0]])
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        Tokens(path=path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokens(path=tmp_path / "none")
    with pytest.raises(ConfigError, match="no token"):
        Tokens([])


async def test_the_login_form_gives_a_cookie(now: Now) -> None:
    kept, token = make("ann", "viewer")
    async with served(Tokens([kept], clock=now)) as http:
        page = await http.get("/login", params={"next": '/jobs"><script>'})
        assert page.status_code == 200 and "<script>" not in page.text.replace('<script type="module"', "")
        proof = {"Origin": "http://localhost"}
        assert (await http.post("/login", data={"token": token})).status_code == 403  # no proof
        wrong = await http.post("/login", data={"token": "x"}, headers=proof)
        assert wrong.status_code == 401 and "not known" in wrong.text and "set-cookie" not in wrong.headers
        answer = await http.post("/login", data={"token": token, "next": "/queues"}, headers=proof)
        assert answer.status_code == 303 and answer.headers["location"] == "/queues"
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and token not in cookie and "Path=/" in cookie
        assert (await http.get("/api/v1/capabilities")).json()["user"] == "ann"
        again = await http.post("/login", data={"token": token}, headers=proof)
        assert again.headers["set-cookie"].split(";")[0] != cookie.split(";")[0]  # new at each login
        now.at += 12 * 3600 + 1
        assert (await http.get("/api/v1/capabilities")).status_code == 401


async def test_a_cookie_over_tls_is_of_this_host_alone() -> None:
    kept, token = make("ann", "viewer")
    async with served(Tokens([kept]), scheme="https") as http:
        answer = await http.post("/login", data={"token": token}, headers={"Origin": "https://localhost"})
        assert answer.headers["set-cookie"].startswith("__Host-treadle=") and "Secure" in answer.headers["set-cookie"]
    async with served(Tokens([kept]), root="/jobs") as http:
        answer = await http.post("/jobs/login", data={"token": token}, headers={"Origin": "http://localhost"})
        assert "Path=/jobs" in answer.headers["set-cookie"] and answer.headers["location"] == "/jobs/"


@pytest.mark.parametrize("following", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "/a\nb"])
async def test_a_login_leads_nowhere_else(following: str) -> None:
    kept, token = make("ann", "viewer")
    async with served(Tokens([kept])) as http:
        form = {"token": token, "next": following}
        answer = await http.post("/login", data=form, headers={"Origin": "http://localhost"})
        assert answer.headers["location"] == "/"


@pytest.mark.parametrize("root", ["", "/ops/jobs"])
async def test_the_page_that_was_asked_for_comes_after_the_login_with_its_filter(root: str) -> None:
    kept, token = make("ann", "viewer")
    web = Dashboard(App("memory://"), access=Tokens([kept]), env="production", color="#aa2211")
    wanted = f"{root}/jobs?filter=state%3Afailed+queue%3Amail&state=failed"
    async with httpx.AsyncClient(transport=Wire(web, root), base_url="http://localhost") as http:
        sent = await http.get(wanted)
        assert sent.status_code == 303 and sent.headers["location"].startswith(f"{root}/login?next=")
        page = await http.get(sent.headers["location"])
        found = re.search(r'name="next" value="([^"]*)"', page.text)
        assert found is not None and page.status_code == 200
        assert "production" in page.text and "#aa2211" in page.text and f'action="{root}/login"' in page.text
        proof = {"Origin": "http://localhost"}
        following = unescape(found.group(1))
        wrong = await http.post(f"{root}/login", data={"token": "x", "next": following}, headers=proof)
        assert found.group(1) in wrong.text  # a typing error costs nothing but the typing
        answer = await http.post(f"{root}/login", data={"token": token, "next": following}, headers=proof)
        assert answer.headers["location"] == wanted


async def test_a_part_is_never_a_login_form() -> None:
    """A script would put it into the middle of a page."""
    kept, _ = make("ann", "viewer")
    web = Dashboard(App("memory://"), access=Tokens([kept]))
    async with client(web) as http:
        answer = await http.get("/jobs?filter=state:failed", headers={"HX-Request": "true"})
        assert answer.status_code == 401 and answer.json()["error"]["kind"] == "unauthorized"


async def test_a_dialog_logs_in_where_it_is(now: Now) -> None:
    kept, token = make("ann", "viewer")
    web = Dashboard(App("memory://"), access=Tokens([kept], clock=now))
    part = {"HX-Request": "true", "Origin": "http://localhost"}
    async with client(web) as http:
        form = await http.get("/login", headers=part)
        assert form.status_code == 200 and "session has expired" in form.text and "<html" not in form.text
        wrong = await http.post("/login", data={"token": "x"}, headers=part)
        assert wrong.status_code == 401 and "not known" in wrong.json()["error"]["message"]
        answer = await http.post("/login", data={"token": token}, headers=part)
        assert answer.status_code == 200 and answer.json()["user"] == "ann"
        page = await http.get("/jobs", headers=part)
        assert page.status_code == 200 and page.headers["treadle-who"] == answer.json()["who"]


async def test_too_many_guesses_are_told_in_the_form(now: Now) -> None:
    kept, _ = make("ann", "viewer")
    async with served(Tokens([kept], clock=now)) as http:
        for n in range(12):
            wrong = await http.post("/login", data={"token": str(n)}, headers={"Origin": "http://localhost"})
        assert wrong.status_code == 429 and "<form" in wrong.text and 1 <= int(wrong.headers["retry-after"]) <= 60


async def test_a_new_login_ends_the_session_before_it() -> None:
    ann, anns = make("ann", "admin")
    bob, bobs = make("bob", "viewer")
    proof = {"Origin": "http://localhost"}
    async with served(Tokens([ann, bob])) as http:
        await http.post("/login", data={"token": anns}, headers=proof)
        held = {"Cookie": f"treadle={http.cookies['treadle']}"}
        await http.post("/login", data={"token": bobs}, headers=proof)
        assert (await http.get("/api/v1/capabilities")).json()["user"] == "bob"
        http.cookies.clear()
        assert (await http.get("/api/v1/capabilities", headers=held)).status_code == 401


async def test_dashboards_on_two_ports_of_a_host_have_sessions_of_their_own() -> None:
    """A browser sends the cookies of a host to all of its ports."""
    kept, token = make("ann", "viewer")
    names: set[str] = set()
    for port in (8181, 8182):
        web = Dashboard(App("memory://"), access=Tokens([kept]), pages=False)
        async with client(web, f"http://localhost:{port}") as http:
            origin = {"Origin": f"http://localhost:{port}"}
            answer = await http.post("/login", data={"token": token}, headers=origin)
            names.add(answer.headers["set-cookie"].partition("=")[0])
    assert len(names) == 2


async def test_a_logout_is_offered_where_a_form_has_logged_in() -> None:
    kept, token = make("ann", "viewer")
    bearer = {"Authorization": f"Bearer {token}"}
    async with client(Dashboard(App("memory://"), access=Tokens([kept]))) as http:
        assert 'action="/logout"' in (await http.get("/help", headers=bearer)).text
        assert 'action="/logout"' not in (await http.post("/preferences", headers=SAME)).text  # nobody is in
    async with client(Dashboard(App("memory://"), access=lambda request: Access("ann", "viewer"))) as http:
        assert 'action="/logout"' not in (await http.get("/help")).text
        assert (await http.post("/logout", headers=SAME)).status_code == 404


async def test_whose_session_is_over_can_log_out_too() -> None:
    kept, _ = make("ann", "viewer")
    async with served(Tokens([kept])) as http:
        answer = await http.post("/logout", headers={"Origin": "http://localhost"})
        assert answer.status_code == 303 and answer.headers["location"] == "/login?out=1"
        assert "You are logged out" in (await http.get("/login?out=1")).text
        assert (await http.post("/logout")).status_code == 403  # another site's page cannot


async def test_a_logout_ends_the_session_on_the_server() -> None:
    kept, token = make("ann", "viewer")
    proof = {"Origin": "http://localhost"}
    async with served(Tokens([kept])) as http:
        await http.post("/login", data={"token": token}, headers=proof)
        held = {"Cookie": f"treadle={http.cookies['treadle']}"}
        assert (await http.post("/logout", headers=proof)).status_code == 303
        http.cookies.clear()
        assert (await http.get("/api/v1/capabilities", headers=held)).status_code == 401


async def test_a_right_token_passes_whatever_others_guess(now: Now) -> None:
    """From the same address, behind NAT or a proxy: ten wrong tokens once locked the right one out."""
    kept, token = make("ann", "viewer")
    tokens = Tokens([kept], clock=now)
    proof = {"Origin": "http://localhost"}
    async with served(tokens) as http:
        for n in range(20):
            wrong = await http.get("/api/v1/capabilities", headers={"Authorization": f"Bearer {n}"})
            assert wrong.status_code == (401 if n < 10 else 429)
            right = await http.get("/api/v1/capabilities", headers={"Authorization": f"Bearer {token}"})
            assert right.status_code == 200
        assert (await http.post("/login", data={"token": "wrong"}, headers=proof)).status_code == 429
        assert (await http.post("/login", data={"token": token}, headers=proof)).status_code == 303
        assert (await http.get("/api/v1/capabilities")).status_code == 200


@pytest.mark.parametrize(
    "address", ["2001:db8:1:2::{n:x}", "2001:db8:1:2:{n:x}::1", "::ffff:192.0.2.7", "64:ff9b::c000:207"]
)
async def test_one_callers_many_addresses_are_one(now: Now, address: str) -> None:
    kept, _ = make("ann", "viewer")
    tokens = Tokens([kept], clock=now)
    for n in range(12):
        async with served(tokens, address.format(n=n + 1)) as http:
            answer = await http.get("/api/v1/capabilities", headers={"Authorization": "Bearer x"})
            assert answer.status_code == (401 if n < 10 else 429), n
    async with served(tokens, "2001:db8:1:3::1") as http:
        assert (await http.get("/api/v1/capabilities", headers={"Authorization": "Bearer x"})).status_code == 401


async def test_guessing_is_limited_by_address(now: Now) -> None:
    kept, token = make("ann", "viewer")
    tokens = Tokens([kept], clock=now)
    async with served(tokens) as http:
        statuses = [
            (await http.get("/api/v1/capabilities", headers={"Authorization": f"Bearer {n}"})).status_code
            for n in range(12)
        ]
        assert statuses == [401] * 10 + [429] * 2
        wrong = {"Authorization": "Bearer x"}
        refused = await http.get("/api/v1/capabilities", headers=wrong)
        assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
        async with served(tokens, "10.0.0.10") as other:
            assert (await other.get("/api/v1/capabilities", headers=wrong)).status_code == 401
        now.at += 61
        assert (await http.get("/api/v1/capabilities", headers=wrong)).status_code == 401
        assert (await http.get("/api/v1/capabilities", headers={"Authorization": f"Bearer {token}"})).status_code == 200


async def test_a_token_expires_and_can_be_revoked(tmp_path: Path, now: Now) -> None:
    path = tmp_path / "tokens"
    ann, anns = make("ann", "viewer", expires=now.at + 60)
    bob, bobs = make("bob", "admin")
    keeping.write(path, [ann, bob])
    async with served(Tokens(path=path, clock=now)) as http:
        proof = {"Origin": "http://localhost"}
        await http.post("/login", data={"token": bobs}, headers=proof)
        assert (await http.get("/api/v1/capabilities")).json()["user"] == "bob"
        as_ann = {"Authorization": f"Bearer {anns}"}
        assert (await http.get("/api/v1/capabilities", headers=as_ann)).status_code == 200
        now.at += 61
        assert (await http.get("/api/v1/capabilities", headers=as_ann)).status_code == 401
        keeping.write(path, [ann])
        assert (await http.get("/api/v1/capabilities")).status_code == 401  # and the session with it
        path.unlink()
        assert (await http.get("/api/v1/capabilities", headers=as_ann)).status_code == 401


async def test_a_page_sends_who_is_not_known_to_the_login() -> None:
    kept, _ = make("ann", "viewer")
    async with served(Tokens([kept])) as http:
        answer = await http.get("/api")
        assert answer.status_code == 303 and answer.headers["location"] == "/login?next=%2Fapi"
        assert (await http.get("/api/v1/jobs")).status_code == 401
