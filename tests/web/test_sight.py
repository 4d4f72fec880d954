"""What a role may not see, it may not match: on every route that takes a filter, found by walking the router.

A filter is an oracle if an answer differs between a guess that is right and one that is wrong. So each question is put
twice, once with a part of the secret and once with nonsense of the same length, and both answers must be the same.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from treadle import App
from treadle.core.filter import LONGEST
from treadle.web import Dashboard
from treadle.web.routing import Route

from .test_matrix import every_route
from .world import ROLES, SAME, World, client, who

pytestmark = pytest.mark.anyio

IBAN = "DE8937040044"
WORD = "hunter2"
EMAIL = "ann@example.org"

# Each asks by the beginning or a part of something that no role sees; beside it, a guess that is wrong.
OUT_OF_SIGHT = {
    f"args.cards.0.iban:{IBAN[:4]}*": "args.cards.0.iban:QQ77*",
    f"args.cards.0.iban:{IBAN}": "args.cards.0.iban:QQ7700000000",
    f"-args.cards.0.iban:{IBAN[:4]}*": "-args.cards.0.iban:QQ77*",
    "args.cards.0.pin:<2000": "args.cards.0.pin:<0001",
    "args.vault.0.deep.0:1": "args.vault.0.deep.0:7",
    f"args.password:{WORD}": "args.password:qqqqqq2",
    f"args.password:x,{WORD[:3]}*": "args.password:x,qqq*",
    f"meta.api_key:{WORD[:1]}*": "meta.api_key:q*",
    f"result.token:{WORD[:2]}*": "result.token:qq*",
    f'args.note:"password={WORD[:3]}"*': 'args.note:"password=qqq"*',
    f'args.url:"https://ann:{WORD[:3]}"*': 'args.url:"https://ann:qqq"*',
    f'args.notes:"password={WORD}"': 'args.notes:"password=qqqqqq2"',
    f"error:{WORD}": "error:qqqqqq2",
    f"-error:{WORD}": "-error:qqqqqq2",
    f"error:{WORD[1:4]}": "error:qqq",
    f'error:"ValueError: login failed: credential={WORD[:2]}"*': 'error:"ValueError: login failed: credential=qq"*',
    f"reason:{WORD[2:5]}": "reason:qqq",
    f'reason:"asked by token={WORD[:3]}"*': 'reason:"asked by token=qqq"*',
    WORD: "qqqqqq2",
    f"-{WORD}": "-qqqqqq2",
    f"state:failed {WORD[1:4]}": "state:failed qqq",
    f"unique:token:{WORD[:3]}*": "unique:token:qqq*",
    f"unique:token:{WORD}:failed": "unique:token:qqqqqq2:failed",
}
# What only roles with payloads see.
HIDDEN = {
    f"args.email:{EMAIL[:3]}*": "args.email:qqq*",
    f"args.email:{EMAIL}": f"args.email:{'q' * len(EMAIL)}",
    f"-args.email:{EMAIL}": f"-args.email:{'q' * len(EMAIL)}",
    "meta.tenant:acme": "meta.tenant:qqqq",
    "result.ok:true": "result.ok:qqqq",
}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    app = App(f"sqlite:///{tmp_path / 'web.db'}", queues=["default"])

    @app.task(name="pay", retry=1)
    async def pay(
        email: str,
        password: str,
        cards: list[dict[str, Any]],
        vault: list[Any],
        note: str,
        notes: list[str],
        url: str,
        fail: bool = False,
    ) -> dict[str, Any]:
        if fail:
            raise ValueError(f"login failed: credential={WORD}")  # which no worker masks before it is stored
        return {"ok": True, "token": WORD}

    secret: dict[str, Any] = {
        "email": EMAIL,
        "password": WORD,
        "cards": [{"iban": IBAN, "pin": 1234}],
        "vault": [{"deep": [1]}],
        "note": f"password={WORD}",
        "notes": [f"password={WORD}"],
        "url": f"https://ann:{WORD}@db/x",
    }
    async with app:
        made = World(app, Dashboard(app, access=who, redact=("cards.iban", "pin", "vault.deep")))
        for key, more in (("succeeded", {}), ("failed", {"fail": True})):
            handle = await app.enqueue(
                "pay",
                secret | more,
                meta={"api_key": WORD, "tenant": "acme"},
                reason=f"asked by token={WORD}",
                unique=f"token:{WORD}:{key}",
            )
            made.ids[key] = handle.id
        async with app.worker(slots=2):
            for id in made.ids.values():
                await app.client.wait_for_end(id, 30)
        async with made.http:
            yield made
        await made.web.close()


def takes_filter(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and "filter" in kind.__struct_fields__


def routes() -> Iterator[Route]:
    for route in every_route():
        if takes_filter(route.query) or takes_filter(route.body):
            yield route


def test_these_routes_take_a_filter() -> None:
    """Whoever adds one finds it asked below. A filter by another name would not be: add it here and there."""
    assert {(route.method, route.path) for route in routes()} == {
        ("GET", "/api/v1/jobs"),
        ("GET", "/api/v1/jobs.csv"),
        ("GET", "/api/v1/counts"),
        ("POST", "/api/v1/operations/preview"),
        ("POST", "/api/v1/operations"),
        ("GET", "/jobs"),
        ("GET", "/operations/new"),
        ("POST", "/operations/new"),
    }


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "GET /api/v1/jobs": [{}, {"order": "due"}, {"limit": 1, "total": "false"}],
    "GET /api/v1/counts": [{"by": each} for each in ("state", "queue", "task", "cause", "pod")],
    "POST /api/v1/operations/preview": [{"act": "priority", "priority": 1}, {"act": "revive"}],
    "POST /api/v1/operations": [{"act": "revive", "expected": 0}],
    "GET /operations/new": [{"act": "revive"}, {"act": "revive", "all": ""}],
    "POST /operations/new": [{"act": "revive", "matched": 2}],
}


async def ask(world: World, route: Route, role: str, text: str, more: dict[str, Any]) -> httpx.Response:
    headers = {"X-Role": role, **SAME}
    given: dict[str, Any] = {"filter": text, **more}
    if "all" in given:
        given |= {"all": text, "filter": ""}
    if route.method == "GET":
        return await world.http.get(route.path, params=given, headers=headers)
    if route.kind == "api":
        return await world.http.post(route.path, json=given, headers=headers)
    return await world.http.post(route.path, data=given, headers=headers)


def told(answer: httpx.Response, text: str) -> tuple[Any, ...]:
    """The answer without what differs each time, and without the question."""
    if answer.status_code >= 400:
        return answer.status_code, sorted(set(re.findall(r'"kind":"(\w+)"', answer.text)))
    said = answer.text
    for form in (text, msgspec.json.encode(text).decode()[1:-1], text.replace('"', "&#34;")):
        said = said.replace(form, "ASKED")
    if answer.status_code in (202, 303):
        return (answer.status_code,)  # an operation that has begun: it is asked below what it matched
    ids = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", said)
    counted = r'"[a-z_]+":[0-9]+(?![0-9.])' if "json" in answer.headers["content-type"] else r">\s*([0-9][0-9,k+]*)\s*<"
    return answer.status_code, sorted(set(ids)), re.findall(counted, said)


@pytest.mark.parametrize("route", list(routes()), ids=lambda route: f"{route.method} {route.path}")
async def test_no_filter_tells_what_is_out_of_sight(world: World, route: Route) -> None:
    web = Dashboard(world.app, access=who, redact=("cards.iban", "pin", "vault.deep"), pages=True)
    world.http = client(web)
    try:
        for role in ROLES:
            probes = OUT_OF_SIGHT | (HIDDEN if role == "viewer" else {})
            for more in VARIANTS.get(f"{route.method} {route.path}", [{}]):
                for right, wrong in probes.items():
                    web.counts.forget()
                    first = await ask(world, route, role, right, more)
                    web.counts.forget()
                    second = await ask(world, route, role, wrong, more)
                    assert first.status_code < 500, (role, right, first.text)
                    assert told(first, right) == told(second, wrong), (role, right, more)
                    assert WORD not in second.text, (role, wrong)
    finally:
        await web.close()


async def test_the_same_questions_are_answered_where_the_secrets_are_seen(world: World) -> None:
    """The command line and Python ask the database itself. (It also shows that each guess above is right.)"""
    for right, wrong in (OUT_OF_SIGHT | HIDDEN).items():
        hits = {job.id for job in (await world.app.jobs.find(right)).jobs}
        assert hits != {job.id for job in (await world.app.jobs.find(wrong)).jobs}, right


async def test_what_is_seen_can_be_matched(world: World) -> None:
    failed, both = {world.ids["failed"]}, set(world.ids.values())
    for text, found in {
        "error:login": failed,
        'error:"credential=***"': failed,
        "reason:asked": both,
        "login": failed,
        "args.email:ann*": both,
        "args.cards.0.name:x": set[str](),
        'args.note:"password=***"': both,
        "unique:token:*": both,
        "args.fail:true": failed,
        "-error:login": {world.ids["succeeded"]},
    }.items():
        answer = await world.get("/jobs", params={"filter": text}, role="viewer+payload")
        assert answer.status_code == 200, (text, answer.text)
        assert {job["id"] for job in answer.json()["items"]} == found, text


@pytest.mark.parametrize("route", list(routes()), ids=lambda route: f"{route.method} {route.path}")
async def test_no_number_is_too_large_for_a_filter(world: World, route: Route) -> None:
    """`priority:99999999999999999999` was a 500 on SQLite."""
    web = Dashboard(world.app, access=who, pages=True)
    world.http = client(web)
    for more in VARIANTS.get(f"{route.method} {route.path}", [{}]):
        for text in ("priority:99999999999999999999", "attempt:>1e300", "priority:-99999999999999999999..9",
                     "args.n:99999999999999999999", "created:>9999-12-31", "age:>36500d"):  # fmt: skip
            answer = await ask(world, route, "admin", text, more)
            assert answer.status_code in (200, 202, 303, 409), (text, answer.text)
        for text in ("priority:nan", "attempt:>inf", f"priority:{'9' * 400}", "created:10000-01-01", "age:>99999999d"):
            answer = await ask(world, route, "admin", text, more)
            assert answer.status_code == 400, (text, answer.text)
    await web.close()


async def test_a_refusal_names_the_term(world: World) -> None:
    answer = await world.get("/jobs", params={"filter": "queue:default args.email:a*"}, role="viewer")
    assert answer.status_code == 403
    assert answer.json()["error"]["fields"] == {"action": "payload", "term": "args"}
    answer = await world.get("/jobs", params={"filter": f"args.cards.0.iban:{IBAN[:2]}*"})
    assert answer.status_code == 403
    assert answer.json()["error"]["fields"] == {"term": "args.cards.0.iban"}
    assert "args.cards.0.iban is redacted" in answer.json()["error"]["message"]
    deep = await world.get("/jobs", params={"filter": f"args.{'.'.join('a' * 30)}:1"})
    assert deep.status_code == 400 and "too deep" in deep.json()["error"]["message"]


async def test_an_operation_goes_on_comparing_what_was_shown(world: World) -> None:
    """It is stored and worked off by another process, which sees everything."""
    begun = await world.post("/operations", {"act": "revive", "filter": f"error:{WORD}"}, role="operator")
    assert begun.status_code == 202, begun.text
    stored = await world.app.operations.get(begun.json()["id"])
    assert stored.filter == f"error:{WORD} as:shown"
    assert (await world.app.operations.run(stored.id)).matched == 0
    begun = await world.post("/operations", {"act": "revive", "filter": "error:login"}, role="operator")
    assert (await world.app.operations.run(begun.json()["id"])).matched == 1


async def test_a_viewer_reads_no_payload_in_the_filter_of_another(world: World) -> None:
    text = f"args.email:{EMAIL} args.password:{WORD} error:password={WORD} queue:default"
    begun = await world.app.operations.start("cancel", text, by="ann", reason=f"token={WORD}")
    web = Dashboard(world.app, access=who, redact=("pin",), pages=True)
    http = client(web)
    paths = ("/operations", f"/operations/{begun.id}", "/api/v1/operations", f"/api/v1/operations/{begun.id}",
             "/api/v1/audit", "/jobs", "/queues")  # fmt: skip
    for path in paths:
        for role in ROLES:
            answer = await http.get(path, headers={"X-Role": role})
            assert answer.status_code == 200
            assert WORD not in answer.text, (role, path)
            if role == "viewer":
                assert EMAIL not in answer.text, path
    seen = (await http.get(f"/api/v1/operations/{begun.id}", headers={"X-Role": "viewer"})).json()["filter"]
    assert seen == 'args.email:"***" args.password:"***" error:"password=***" queue:default'
    seen = (await http.get(f"/api/v1/operations/{begun.id}", headers={"X-Role": "operator"})).json()["filter"]
    assert seen == f'args.email:{EMAIL} args.password:"***" error:"password=***" queue:default'
    await web.close()


async def test_keys_of_payloads_are_completed_for_those_who_see_them(world: World) -> None:
    for role in ROLES:
        items = (await world.get("/complete", params={"text": "arg"}, role=role)).json()["items"]
        assert bool(items) == (role != "viewer"), role


async def test_a_filter_as_long_as_may_be_is_refused_clearly(world: World) -> None:
    text = f"error:{'a' * (LONGEST - 6)}"
    answer = await world.get("/jobs", params={"filter": text})
    assert answer.status_code == 400
