"""The faults of section M, each by its id. M1 and raw sockets are in test_server; M4, M5 and M6 in browsers, too."""

from __future__ import annotations

import logging

import msgspec
import pytest

from .world import World

JSON_HEADERS = {"Content-Type": "application/json"}

pytestmark = pytest.mark.anyio


async def test_M2_a_body_that_is_too_large_is_refused_early(world: World) -> None:
    answer = await world.post("/jobs", content=b" " * 16, headers={"Content-Length": str(1 << 30)})
    assert answer.status_code == 413 and answer.headers["connection"] == "close"
    huge = b'{"task": "hello", "args": {"name": "' + b"x" * (2 << 20) + b'"}}'
    assert (await world.post("/jobs", content=huge, headers={"Content-Type": "application/json"})).status_code == 413


async def test_M2_a_chunked_body_is_counted(world: World) -> None:
    from treadle.web import body
    from treadle.web.problem import Problem

    taken = 0

    async def receive() -> dict[str, object]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 65536, "more_body": True}

    from starlette.requests import Request

    request = Request(
        {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}, receive
    )
    with pytest.raises(Problem, match="larger than"):
        await body.read(request, body.JSON)
    assert taken == 33  # and not one more


async def test_M2_nothing_is_decompressed(world: World) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert (await world.post("/jobs", content=b"\x1f\x8b", headers=headers)).status_code == 415


async def test_M3_another_host_is_refused(world: World) -> None:
    for host in ("evil.com", "evil.com:8181", "localhost@evil.com", "127.0.0.1.evil.com"):
        answer = await world.get("/jobs", headers={"Host": host})
        assert answer.status_code == 421 and answer.json()["error"]["kind"] == "wrong_host"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_M4_what_another_site_sends_is_refused(world: World, method: str) -> None:
    paths = {"POST": "/queues/later/pause", "PUT": "/limits/mail", "PATCH": "/queues/later"}
    path = paths.get(method, "/locks/import")
    answer = await world.ask(method, path, headers={"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"})
    assert answer.status_code == 403 and not (await world.app.queues.get("later")).paused


async def test_M5_nothing_may_be_framed(world: World) -> None:
    for path in ("/api/v1/jobs", "/api", "/healthz", "/nothing"):
        headers = (await world.http.get(path, headers={"X-Role": "admin"})).headers
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_M6_a_stored_script_stays_text(world: World) -> None:
    evil = "</script><script>alert(1)</script>"
    made = await world.app.enqueue("other", {"x": evil}, tags=[evil], reason=evil)
    answer = await world.get(f"/jobs/{made.id}")
    assert answer.headers["content-type"] == "application/json" and answer.json()["args"] == {"x": evil}
    page = await world.http.get("/api", headers={"X-Role": "admin"})
    assert "<script" not in page.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "/static/..%2f..%2fetc%2fpasswd",
        "/static/%00",
        "/api/v1/jobs/..%2f..%2fqueues",
        "/api/v1/jobs/%00/logs",
        "//healthz",
        "/healthz/",
    ],
)
async def test_M7_no_path_leads_out(world: World, path: str) -> None:
    answer = await world.http.get(path, headers={"X-Role": "admin"})
    assert answer.status_code == 404 and "root:" not in answer.text


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/jobs", {"filter": "state:failed' or 1=1 --"}),
        ("/jobs", {"filter": 'queue:"x\'; drop table treadle_job; --"'}),
        ("/jobs", {"cursor": "1; drop table treadle_job"}),
        ("/jobs", {"order": "id; drop table treadle_job"}),
        ("/audit", {"cursor": "' or '1'='1"}),
        ("/queues", {"cursor": "' or '1'='1"}),
    ],
)
async def test_M8_sql_is_only_text(world: World, path: str, params: dict[str, str]) -> None:
    answer = await world.get(path, params=params)
    assert answer.status_code in (200, 400) and "syntax" not in answer.text
    assert len((await world.app.jobs.find("")).jobs) == 6


@pytest.mark.parametrize("params", [{"limit": 10**9}, {"limit": -1}, {"filter": "x" * 5000}, {"filter": "(a+)+$" * 9}])
async def test_M9_pages_are_capped_and_there_are_no_expressions(world: World, params: dict[str, object]) -> None:
    answer = await world.get("/jobs", params=params)
    assert answer.status_code in (200, 400) and len(answer.json().get("items", [])) <= 200


@pytest.mark.parametrize(
    "kind",
    [
        "application/x-www-form-urlencoded",
        "text/plain",
        "multipart/form-data",
        "application/x-yaml",
        "application/pickle",
    ],
)
async def test_M10_only_json_is_read(world: World, kind: str) -> None:
    answer = await world.post("/jobs", content=b'{"task": "hello"}', headers={"Content-Type": kind})
    assert answer.status_code == 415 and answer.json()["error"]["kind"] == "unsupported_media"


async def test_M10_a_body_must_say_what_it_is(world: World) -> None:
    request = world.http.build_request("POST", "/api/v1/jobs", content=b"{}", headers={"X-Role": "admin"})
    request.headers["Sec-Fetch-Site"] = "same-origin"
    assert (await world.http.send(request)).status_code == 415


async def test_M11_a_log_line_stays_one_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "treadle.web"):
        await world.post("/queues/x%0d%0aINFO forged/pause")
        await world.post("/queues/x%1b[31m/pause", role="viewer")
    assert caplog.records
    for record in caplog.records:
        told = record.getMessage()
        assert not any(letter in told for letter in "\r\n\x1b"), told


async def test_M12_a_viewer_is_refused_and_it_is_audited(world: World) -> None:
    answer = await world.post("/queues/later/pause", role="viewer")
    assert answer.status_code == 403 and not (await world.app.queues.get("later")).paused
    line = (await world.audit())[0]
    assert (line.act, line.by, line.subject) == ("refused", "the-viewer", "later")
    assert "POST /api/v1/queues/{name}/pause" in line.detail and answer.headers["x-request-id"] in line.detail


TWICE = {
    b'{"task":"hello","task":"broken","args":{}}': "task",
    b'{"task":"hello","args":{"name":"a","name":"b"}}': "name",
    b'{"task":"hello","args":{"name":"a","deep":[{"x":[{"y":1,"\\u0079":2}]}]}}': "y",
}


@pytest.mark.parametrize("body", TWICE)
async def test_a_key_that_stands_twice_is_refused_and_named(world: World, body: bytes) -> None:
    """Somebody in front of us may have checked the other one."""
    headers = {"Content-Type": "application/json"}
    answer = await world.post("/jobs", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["fields"] == {"field": TWICE[body]}
    assert f"the key '{TWICE[body]}' twice" in answer.json()["error"]["message"]
    many = await world.post("/jobs", content=b"[" + body + b"]", headers=headers)
    assert many.status_code == 400 and many.json()["error"]["fields"] == {"field": TWICE[body]}


async def test_no_route_takes_a_key_twice(world: World) -> None:
    """Every route with a body that is JSON, by walking the router: with one of its own fields twice, and deeper."""
    await world.app.queues.pause("mail", by="ann")
    known = {"name": "mail", "id": world.ids["ready"], "token": "none", "scope": "slack"}
    asked = 0
    for route in world.web.table.routes:
        if route.kind != "api" or route.is_safe or route.body is None or route.before is not None:
            continue  # answers look at their token first: see test_answers
        path = "/" + "/".join(known.get(part[1:-1], "x") if part.startswith("{") else part for part in route.parts)
        is_struct = isinstance(route.body, type) and issubclass(route.body, msgspec.Struct)
        for name in route.body.__struct_encode_fields__ if is_struct else ("task",):
            for body in (f'{{"{name}":1,"{name}":1}}', f'{{"{name}":[{{"{name}":{{}},"{name}":0}}]}}'):
                answer = await world.ask(route.method, path, content=body.encode(), headers=JSON_HEADERS)
                assert answer.status_code == 400, (route.path, name, answer.text)
                assert answer.json()["error"]["fields"] == {"field": name}
                assert "twice" in answer.json()["error"]["message"]
            asked += 1
    assert asked > 20


async def test_a_parameter_that_is_there_twice_is_refused(world: World) -> None:
    answer = await world.get("/jobs?filter=state:failed&filter=state:ready")
    assert answer.status_code == 400 and '"filter" is there twice' in answer.json()["error"]["message"]


async def test_a_body_of_many_small_objects_is_read_quickly(world: World) -> None:
    """The look for keys that stand twice makes nothing: it is linear, and numbers are not converted."""
    body = b'{"task":"hello","args":{"name":[' + b"{}," * 300_000 + b"9" * 5000 + b"]}}"
    answer = await world.post("/jobs", content=body, headers=JSON_HEADERS)
    assert answer.status_code in (400, 413)


async def test_depth_and_numbers_beyond_all_measure(world: World) -> None:
    json = {"Content-Type": "application/json"}
    deep = b'{"task": "hello", "args": ' + b'{"name": ' * 5000 + b"1" + b"}" * 5000 + b"}"
    assert (await world.post("/jobs", content=deep, headers=json)).status_code == 400
    for body in (b"{", b"\xff\xfe", b'{"task": NaN}', b'{"task": "hello", "args": {"name": 1e999}}', b"null", b'"x"'):
        answer = await world.post("/jobs", content=body, headers=json)
        assert answer.status_code == 400, (body, answer.text)


async def test_a_storage_that_is_away_is_503_without_a_word_of_why(world: World) -> None:
    from treadle.core.errors import StorageUnavailable

    async def away(*args: object) -> None:
        raise StorageUnavailable("/secret/path.db: select * from treadle_job: disk I/O error")

    storage = world.app.storage
    try:
        storage.find = away  # type: ignore[method-assign, assignment]
        world.web.reads.client._sleep = _no_sleep
        answer = await world.get("/jobs?total=false")
    finally:
        del storage.find  # type: ignore[attr-defined]
    assert answer.status_code == 503 and "secret" not in answer.text and int(answer.headers["retry-after"]) > 0
    assert (await world.get("/readyz")).status_code == 503
    assert (await world.get("/jobs")).status_code == 200 and (await world.get("/readyz")).status_code == 200
    assert (await world.get("/healthz")).status_code == 200


async def _no_sleep(seconds: float) -> None:
    return None


async def test_a_bug_is_500_without_a_word_of_why(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*args: object) -> None:
        raise RuntimeError("select secret from /etc/passwd")

    storage = world.app.storage
    try:
        storage.find = broken  # type: ignore[method-assign, assignment]
        answer = await world.get("/jobs?total=false")
    finally:
        del storage.find  # type: ignore[attr-defined]
    assert answer.status_code == 500 and "secret" not in answer.text
    assert answer.json()["error"]["request_id"] in caplog.text and "select secret" in caplog.text
