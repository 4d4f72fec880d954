"""Streams: hints that are merged, a job that is followed, places that are limited, and an end at a stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from treadle import App, Context
from treadle.web import Dashboard, access, stream
from treadle.web.access import Access
from treadle.web.tokens import Tokens, make

from .world import World, world_on

pytestmark = pytest.mark.anyio


class Reader:
    """Reads a stream of a dashboard, without a socket."""

    def __init__(
        self,
        web: Dashboard,
        path: str,
        role: str = "admin",
        *,
        method: str = "GET",
        address: str = "127.0.0.1",
        **headers: str,
    ) -> None:
        self.status = 0
        self.text = ""
        self.ended = asyncio.Event()
        self._gone = asyncio.Event()
        self._web = web
        route, _, query = path.partition("?")
        given = {"host": "localhost", "x-role": role, **headers}
        self._scope = {
            "type": "http", "method": method, "path": f"/api/v1{route}", "query_string": query.encode(),
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()], "root_path": "",
            "client": (address, 1), "server": ("localhost", 80), "http_version": "1.1",
        }  # fmt: skip
        self._asked = False

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.text += message.get("body", b"").decode()

    async def __aenter__(self) -> Reader:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def _run(self) -> None:
        try:
            await self._web(self._scope, self._receive, self._send)
        finally:
            self.ended.set()

    async def __aexit__(self, *exc: object) -> None:
        self._gone.set()
        await self._task

    async def until(self, words: str, seconds: float = 5.0) -> str:
        async with asyncio.timeout(seconds):
            while words not in self.text and not self.ended.is_set():
                await asyncio.sleep(0.01)
        assert words in self.text, self.text
        return self.text

    def events(self) -> list[tuple[str, Any]]:
        found = []
        for block in self.text.split("\n\n"):
            lines = dict(
                line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":")
            )
            if "event" in lines:
                found.append((lines["event"], json.loads(lines["data"])))
        return found


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.005)


async def test_a_change_is_hinted_and_many_are_one_hint(world: World) -> None:
    async with Reader(world.web, "/stream?topics=jobs,queues") as reader:
        await reader.until(": treadle")
        await asyncio.sleep(0.1)
        for number in range(20):
            await world.app.enqueue("hello", {"name": str(number)}, queue="later")
        await reader.until("event: jobs")
        await asyncio.sleep(0.1)
        assert [name for name, _ in reader.events()].count("jobs") <= 2
        assert all(data == {} for _, data in reader.events())
        assert "id: " in reader.text
    assert world.web.hub.count == 0 and world.web.hub._looking is None


async def test_what_has_no_signal_is_found_by_looking(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LOOK", 0.05)
    async with Reader(world.web, "/stream?topics=schedules,limits,metrics") as reader:
        await reader.until("event: metrics")
        point = next(data for name, data in reader.events() if name == "metrics")
        assert point["ready"] == 1 and point["depth"]["later"] == 1
        await world.app.schedules.pause("nightly")
        await reader.until("event: schedules")
        await world.app.limits.set("mail", "7/s")
        await reader.until("event: limits")


async def test_a_quiet_stream_is_kept_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "KEPT_ALIVE", 0.05)
    async with Reader(world.web, "/stream?topics=pods") as reader:
        await reader.until(": still here")


async def test_there_are_so_many_streams_and_no_more(world: World) -> None:
    world.web.hub.places.most = 2
    job = world.ids["scheduled"]
    paths = ("/stream", f"/jobs/{job}/stream")
    async with Reader(world.web, "/stream") as one, Reader(world.web, f"/jobs/{job}/stream", "viewer") as two:
        await one.until(": treadle")
        await two.until("event: job")
        for path in paths:
            async with Reader(world.web, path) as three:
                await three.ended.wait()
                assert three.status == 503 and "unavailable" in three.text
    async with Reader(world.web, "/stream") as again:
        await again.until(": treadle")


async def test_one_user_cannot_take_all_streams(world: World) -> None:
    """A viewer took all 200, and nobody else had a page that was live."""
    world.web.hub.places.most = 8
    job = world.ids["scheduled"]
    paths = ("/stream", f"/jobs/{job}/stream") * 4
    async with contextlib.AsyncExitStack() as stack:
        greedy = [await stack.enter_async_context(Reader(world.web, path, "viewer")) for path in paths]
        await until(lambda: all(each.status for each in greedy))
        assert sorted(each.status for each in greedy) == [200] * 4 + [429] * 4
        refused = [each.text for each in greedy if each.status == 429]
        assert all("4 streams of yours" in each and '"rate_limited"' in each for each in refused)
        for role in ("admin", "operator"):  # others still get theirs, whatever the address
            other = await stack.enter_async_context(Reader(world.web, "/stream", role))
            await other.until(": treadle")
    assert world.web.hub.count == 0


async def test_where_nobody_logs_in_one_address_cannot_take_all_streams() -> None:
    app = App("memory://")
    web = Dashboard(app, access="open", pages=False)
    web.hub.places.most = 8
    addresses = [f"2001:db8:0:1::{number}" for number in range(8)]  # of one /64: one caller
    async with app, contextlib.AsyncExitStack() as stack:
        greedy = [await stack.enter_async_context(Reader(web, "/stream", address=each)) for each in addresses]
        await until(lambda: all(each.status for each in greedy))
        assert sorted(each.status for each in greedy) == [200] * 4 + [429] * 4
        other = await stack.enter_async_context(Reader(web, "/stream", address="2001:db8:0:2::1"))
        await other.until(": treadle")
    await web.close()


@pytest.mark.parametrize("path", ["/stream", "/jobs/{id}/stream"])
async def test_a_stream_that_never_began_gives_its_place_back(world: World, path: str) -> None:
    """HEAD took a place for ever: a source that was not begun has no end."""
    for _ in range(3):
        async with Reader(world.web, path.format(id=world.ids["scheduled"]), method="HEAD") as reader:
            await reader.ended.wait()
            assert reader.status == 200
    assert world.web.hub.count == 0 and not world.web.hub._subscribers


@pytest.mark.parametrize("path", ["/stream", "/jobs/{id}/stream"])
@pytest.mark.parametrize("change", ["revoked", "role", "expired", "broken", "hangs"])
async def test_a_stream_ends_when_its_token_does(
    world: World, monkeypatch: pytest.MonkeyPatch, path: str, change: str
) -> None:
    """It went on for as long as its reader liked."""
    monkeypatch.setattr(stream, "CHECKED", 0.01)
    monkeypatch.setattr(access, "LONGEST_CHECK", 0.01)
    now = 1_800_000_000.0
    kept, bearer = make("ann", "viewer+payload", expires=now + 60)
    tokens = Tokens([kept], clock=lambda: now)
    web = Dashboard(world.app, access=tokens, pages=False)
    asked: list[str] = []
    of_now = web._gate._authenticate

    def count(request: Any) -> Any:
        asked.append("")
        return of_now(request)

    web._gate._authenticate = count
    headers = {"authorization": f"Bearer {bearer}"}
    async with Reader(web, path.format(id=world.ids["scheduled"]), **headers) as reader:
        await reader.until(": treadle" if path == "/stream" else "event: job")
        await until(lambda: len(asked) > 3)
        assert not reader.ended.is_set()  # as long as nothing changes, it stays
        if change == "revoked":
            del tokens._tokens["ann"]
        elif change == "role":
            tokens._tokens["ann"] = structs.replace(kept, role="viewer")
        elif change == "expired":
            now += 61
        elif change == "broken":
            web._gate._authenticate = lambda request: 1 / 0  # type: ignore[assignment, return-value]
        else:
            web._gate._authenticate = lambda request: asyncio.sleep(60)  # type: ignore[assignment, return-value]
        async with asyncio.timeout(10):
            await reader.ended.wait()
        assert reader.events()[-1] == ("end", {})
    assert web.hub.count == 0
    await web.close()


async def test_streams_end_at_a_stop(world: World) -> None:
    async with Reader(world.web, "/stream") as one, Reader(world.web, f"/jobs/{world.ids['ready']}/stream") as two:
        await one.until(": treadle")
        await two.until("event: job")
        async with asyncio.timeout(2):
            await world.web.close()
            await one.ended.wait()
            await two.ended.wait()
        assert "event: end" in one.text and "event: end" in two.text
    async with Reader(world.web, "/stream") as late:
        await late.ended.wait()
        assert late.status == 503
    assert (await world.get("/readyz")).status_code == 503 and (await world.get("/healthz")).status_code == 200


async def test_a_page_of_another_site_gets_no_stream(world: World) -> None:
    async with Reader(world.web, "/stream", origin="http://evil.example") as reader:
        await reader.ended.wait()
        assert reader.status == 403


async def test_a_reader_that_does_not_read_is_let_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SLOWEST_READER", 0.05)
    reader = Reader(world.web, "/stream")

    async def stuck(message: dict[str, Any]) -> None:
        if message["type"] != "http.response.start":
            await asyncio.sleep(60)

    reader._send = stuck  # type: ignore[method-assign]
    async with reader, asyncio.timeout(2):
        await reader.ended.wait()
    assert world.web.hub.count == 0


async def test_the_end_of_the_storage_is_not_the_end_of_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LOOK", 0.05)
    async with (
        world_on(tmp_path / "x.db", filled=False) as world,
        Reader(world.web, "/stream?topics=queues") as reader,
    ):
        await reader.until(": treadle")
        original = world.app.queues.list
        world.web.reads.queues.list = _broken  # type: ignore[method-assign]
        await asyncio.sleep(0.2)
        world.web.reads.queues.list = original  # type: ignore[method-assign]
        await asyncio.sleep(0.2)
        await world.app.queues.pause("x")
        await reader.until("event: queues")


async def _broken() -> Any:
    raise RuntimeError("away")


async def test_a_job_is_followed_to_its_end() -> None:
    app = App("memory://", queues=["default"])
    go = asyncio.Event()

    @app.task(name="steps")
    async def steps(ctx: Context[Any]) -> str:
        ctx.log.info("token=abc half way")
        await ctx.progress(1, 2, "half")
        await ctx.flush()
        await go.wait()
        return "done"

    web = Dashboard(app, access=lambda request: Access("x", request.headers["x-role"]), pages=False)
    async with app, app.worker():
        handle = await steps.enqueue()
        async with Reader(web, f"/jobs/{handle.id}/stream") as reader:
            await reader.until('"half"')
            go.set()
            await reader.until("event: end")
        states = [data["state"] for name, data in reader.events() if name == "job"]
        assert states[-1] == "succeeded" and reader.events()[-1] == ("end", {})
        assert "abc" not in reader.text
        async with Reader(web, f"/jobs/{handle.id}/stream", role="viewer") as reader:
            await reader.until("event: end")
        assert "event: log" not in reader.text
        told = [data for name, data in reader.events() if name == "job"]
        assert told[-1]["result"] == {"hidden": True}


async def test_that_the_storage_is_away_is_told_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages ask when they are told to: without a word they would show what was, and call it live."""
    from treadle.core.errors import StorageUnavailable

    hub, hinted = world.web.hub, []
    monkeypatch.setattr(hub, "_hint", lambda topic, data=None: hinted.append(topic))
    monkeypatch.setattr("treadle.web.stream.LOOK", 0.01)
    hub.subscribe(["queues"])
    looking = asyncio.ensure_future(hub._look())
    await asyncio.sleep(0.2)
    before = len(hinted)

    async def away(*_: object) -> object:
        raise StorageUnavailable("away")

    monkeypatch.setattr(world.web.reads.queues, "list", away)
    await asyncio.sleep(0.2)
    looking.cancel()
    assert hinted[before:] == ["queues"]
