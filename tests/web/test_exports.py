"""Charts and exports over HTTP: depths, comparisons, and CSV that no spreadsheet runs and no role sees too much of."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from typing import Any

import pytest

from treadle.core import sheet
from treadle.core.rollup import MINUTE, Rollup
from treadle.core.share import Shares
from treadle.runtime.services.sounder import Sounder
from treadle.web import sheets, stream
from treadle.web.api import exports

from .test_streams import Reader
from .world import CANARY, PAYLOAD, World

pytestmark = pytest.mark.anyio


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


async def ran(world: World, ago: int, runs: int, task: str = "send") -> None:
    now = await world.app.storage.time()
    at = now - now % MINUTE - ago * MINUTE
    row = Rollup(resolution=MINUTE, at=at, queue="mail", task=task, outcomes={"succeeded": runs})
    row.run.add_all([0.5] * runs)
    await world.app.storage.roll_up([row])


async def test_jobs_as_csv(world: World) -> None:
    answer = await world.get("/jobs.csv?filter=state:failed")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert answer.headers["content-disposition"].startswith('attachment; filename="treadle-jobs-')
    found = read(answer.text)
    assert world.ids["failed"] in {row["id"] for row in found}
    assert {row["state"] for row in found} == {"failed"}
    assert list(found[0]) == [*sheet.JOB, *sheet.PAYLOAD]
    listed = (await world.get("/jobs?filter=state:failed")).json()["items"]
    assert [row["id"] for row in found] == [each["id"] for each in listed]


async def test_secrets_are_masked_and_payloads_are_for_those_who_may_see_them(world: World) -> None:
    for role in ("viewer", "viewer+payload", "operator", "admin"):
        text = (await world.get("/jobs.csv", role=role)).text
        assert CANARY not in text, role
        assert (PAYLOAD in text) == (role != "viewer"), role
    assert "args" not in read((await world.get("/jobs.csv", role="viewer")).text)[0]
    refused = await world.get("/jobs.csv?filter=args.name:x", role="viewer")
    assert (refused.status_code, refused.json()["error"]["kind"]) == (403, "forbidden")


async def test_nothing_that_was_enqueued_is_a_formula(world: World) -> None:
    await world.app.enqueue("hello", {"name": "x"}, queue="sheet", reason="=cmd|'/c calc'!A1", tags=["+1", "-2"])
    (row,) = read((await world.get("/jobs.csv?filter=queue:sheet")).text)
    assert (row["reason"], row["tags"]) == ("'=cmd|'/c calc'!A1", "'+1 -2")


async def test_nothing_that_was_enqueued_hides_or_turns_text_or_forges_a_record(world: World) -> None:
    planted = "pay\u202efdp.exe\x1b[2J\u2066\x85\u2028\n019a,succeeded"
    await world.app.enqueue("hello", {"name": planted}, queue="sheet", reason=planted)
    answer = await world.get("/jobs.csv?filter=queue:sheet")
    assert len(answer.text.splitlines()) == 2
    assert answer.text.replace("\r\n", "").isprintable()
    (row,) = read(answer.text)
    assert row["reason"] == "pay\\u202efdp.exe\\u001b[2J\\u2066\\u0085\\u2028\\n019a,succeeded"
    assert json.loads(row["args"]) == {"name": planted}


async def test_an_error_says_what_was_asked_and_shows_all_of_it(world: World) -> None:
    for path in ("/queues/x%E2%80%AE%1B[2J/pause", "/jobs?filter=quue%E2%80%AE:x"):
        answer = await (world.post(path) if path.endswith("pause") else world.get(path))
        assert answer.status_code >= 400
        assert "\u202e" not in answer.text and "\\u202e" not in answer.text.replace("\\\\u202e", "")
    page = await world.http.get("/jobs/x%E2%80%AEy", headers={"X-Role": "admin", "Accept": "text/html"})
    assert page.status_code == 404
    assert "\u202e" not in page.text


async def test_a_file_goes_on_over_pages_and_says_where_it_is_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "PAGE", 3)
    for number in range(8):
        await world.app.enqueue("hello", {"name": str(number)}, queue="sheet")
    whole = (await world.get("/jobs.csv?filter=queue:sheet")).text.splitlines()
    assert len(whole) == 9
    cut = (await world.get("/jobs.csv?filter=queue:sheet&limit=5")).text.splitlines()
    assert cut[:6] == whole[:6]
    assert cut[6:] == ["# there are more: only the newest 5 are here; narrow the filter for the others"]


async def test_what_is_wrong_is_said_before_the_file_begins(world: World) -> None:
    assert (await world.get("/jobs.csv?filter=quue:mail")).status_code == 400
    assert (await world.get("/jobs.csv?limit=0")).status_code == 400
    assert (await world.ask("HEAD", "/jobs.csv")).text == ""


async def test_only_so_many_files_at_once_and_two_of_one_user(world: World) -> None:
    places = exports._open.setdefault(world.web, Shares(exports.AT_ONCE))  # pyright: ignore[reportPrivateUsage]
    for _ in range(2):
        assert places.take("user the-admin") == "granted"
    answer = await world.get("/jobs.csv")
    assert answer.status_code == 429 and "2 exports are under way, 2 of them yours" in answer.text
    assert (await world.get("/jobs.csv", "viewer")).status_code == 200
    for caller in ("user a", "user b"):
        assert places.take(caller) == "granted"
    assert (await world.get("/jobs.csv", "viewer")).status_code == 429
    for caller in ("user a", "user b", "user the-admin", "user the-admin"):
        places.give_back(caller)
    for _ in range(6):  # a file that is sent, one that is only asked about, and one that never begins give back theirs
        assert (await world.get("/jobs.csv")).status_code == 200
        assert (await world.ask("HEAD", "/jobs.csv")).status_code == 200
        assert (await world.get("/jobs.csv?filter=args.x:1")).status_code in (200, 400)
    assert places.taken == 0


async def test_a_file_breaks_off_when_its_token_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "PAGE", 1)
    monkeypatch.setattr(sheets, "_PART", 1)
    monkeypatch.setattr(stream, "CHECKED", 0.01)
    reader = Reader(world.web, "/jobs.csv")
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)
        if message.get("body"):
            await asyncio.Event().wait()  # a slow reader

    reader._send = send  # type: ignore[method-assign]
    async with asyncio.timeout(20), reader:
        while not any(each.get("body") for each in messages):
            await asyncio.sleep(0.005)
        world.web._gate._authenticate = lambda request: None
        await reader.ended.wait()
    assert not any(each["type"] == "http.response.body" and not each["more_body"] for each in messages)
    assert exports._open[world.web].taken == 0  # pyright: ignore[reportPrivateUsage]


async def test_who_stops_to_read_is_let_go_and_gives_its_place_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "PAGE", 1)
    monkeypatch.setattr(sheets, "_PART", 1)
    monkeypatch.setattr(stream, "SLOWEST_READER", 0.05)
    stuck = Reader(world.web, "/jobs.csv")
    sent = 0

    async def send(message: dict[str, Any]) -> None:
        nonlocal sent
        sent += message["type"] == "http.response.body"
        if sent > 1:
            await asyncio.Event().wait()

    stuck._send = send  # type: ignore[method-assign]
    async with asyncio.timeout(5), stuck:
        await stuck.ended.wait()
    assert sent == 2
    assert exports._open[world.web].taken == 0  # pyright: ignore[reportPrivateUsage]


async def test_a_file_that_breaks_off_has_no_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "PAGE", 1)
    monkeypatch.setattr(exports, "SLOWEST", -1.0)  # the second page does not come in time
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    broken = Reader(world.web, "/jobs.csv")
    broken._send = send  # type: ignore[method-assign]
    async with broken:
        await broken.ended.wait()
    assert messages[0]["status"] == 200
    assert not any(each["type"] == "http.response.body" and not each["more_body"] for each in messages)
    assert exports._open[world.web].taken == 0  # pyright: ignore[reportPrivateUsage]


async def test_failures_as_csv(world: World) -> None:
    answer = await world.get("/failures.csv", role="viewer")
    listed = (await world.get("/failures")).json()["items"]
    found = read(answer.text)
    assert [(row["type"], int(row["count"])) for row in found] == [(each["type"], each["count"]) for each in listed]
    assert CANARY not in answer.text


async def test_timings_as_csv(world: World) -> None:
    await ran(world, 2, 40)
    await ran(world, 2, 4, "=evil")
    found = {row["task"]: row for row in read((await world.get("/series/tasks.csv?since=1h")).text)}
    assert (found["send"]["runs"], found["send"]["queue"], found["send"]["bad"]) == ("40", "mail", "0")
    assert "'=evil" in found


async def test_one_range_against_another(world: World) -> None:
    await ran(world, 2, 40)
    await ran(world, 17, 10)
    told: dict[str, Any] = (await world.get("/series/compare?since=15m&queue=mail")).json()
    (pair,) = told["items"]
    assert pair["runs"] == {"before": 10, "by": 3.0, "word": "more"}
    assert pair["now"]["outcomes"] == {"succeeded": 40}
    assert told["until"] > told["since"] == told["before_until"]
    (row,) = read((await world.get("/series/compare.csv?since=15m&queue=mail")).text)
    assert (row["runs"], row["runs_before"], row["runs_by"], row["runs_word"]) == ("40", "10", "3.0", "more")
    refused = await world.get("/series/compare?since=15m&against=week")
    assert refused.status_code == 400
    assert "minutes are kept for 3 days" in refused.json()["error"]["message"]


async def test_how_deep_queues_were(world: World) -> None:
    await world.app.enqueue("hello", {"name": "x"}, queue="sheet")
    await Sounder(world.app.storage).run_once()
    told = (await world.get("/series/depth?since=15m&queue=sheet", role="viewer")).json()
    assert told["step"] == 60.0
    assert [point["ready"] for point in told["points"] if point["ready"] is not None] == [1]
    assert [each["queue"] for each in told["queues"]] == ["sheet"]
