"""The schedule form shows when it fires next, in the schedule's own zone, before anything is saved."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .world import PAYLOAD, SAME, World, world_on

pytestmark = pytest.mark.anyio
DIALOG = {"X-Role": "admin", "HX-Request": "true", "Treadle-Dialog": "1"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", pages=True) as made:
        yield made


async def preview(world: World, **query: Any) -> str:
    answer = await world.http.get("/schedules-preview", headers=DIALOG, params=query)
    assert answer.status_code == 200, answer.text
    return answer.text


async def post(world: World, path: str, role: str = "admin", **form: str) -> httpx.Response:
    return await world.http.post(path, headers={"X-Role": role, **SAME}, data=form)


async def test_a_part_with_words_and_five_fires(world: World) -> None:
    page = await preview(world, expression="0 9 * * MON-FRI", tz="Europe/Berlin")
    assert page.startswith("<div") and "<html" not in page
    assert "09:00" in page and "Europe/Berlin" in page
    assert len(re.findall(r"<li><time[^>]*>(?:Mon|Tue|Wed|Thu|Fri) \d+ \w+ \d{4} 09:00</time>", page)) == 5
    assert len(re.findall(r">\+0[12]:00</span>", page)) == 5


async def test_a_change_of_the_clocks_is_seen(world: World) -> None:
    """Five fires that lie over a whole year have both offsets, whatever the day is."""
    page = await preview(world, expression="0 9 1 1,4,7,10,12 *", tz="Europe/Berlin")
    assert ">+01:00</span>" in page and ">+02:00</span>" in page and "clocks change" in page


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"expression": "0 25 * * *"}, "the hour cannot be &#39;25&#39;"),
        ({"expression": "0 0 30 2 *"}, "no day 30 in month 2"),
        ({"expression": "every 10m", "tz": "Mars/Base"}, "there is no time zone"),
        ({"expression": "<b>" * 50}, "has 1 fields"),
        ({"expression": ""}, "is shown here as you fill in the form"),
    ],
)
async def test_what_is_wrong_is_said_where_the_fires_would_be(world: World, query: dict[str, str], says: str) -> None:
    page = await preview(world, **query)
    assert says in page and "<b>" not in page


async def test_an_interval_that_is_edited_keeps_its_times(world: World) -> None:
    await world.app.schedules.add("poll", "every 7h", "hello", {"name": "x"})
    coming = [
        each.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for each in await world.app.schedules.next("poll", 5)
    ]
    for page in (
        await preview(world, expression="every  7h", name="poll"),
        await preview(world, expression="every 7h", tz="Asia/Tokyo", name="poll"),
        (await world.http.get("/schedules/poll/edit", headers=DIALOG)).text,
    ):
        assert re.findall(r'<li><time datetime="([^"]*)"', page) == coming
    page = await preview(world, expression="every 6h", name="poll")  # another interval counts from when it is saved
    assert not set(coming) & set(re.findall(r'<li><time datetime="([^"]*)"', page))


async def test_without_a_script_the_form_comes_back_with_its_fires(world: World) -> None:
    before = len(await world.audit())
    answer = await post(
        world, "/schedules-new/preview", name="evening", expression="30 20 * * *", tz="Asia/Tokyo", args='{"a": 1}'
    )
    assert answer.status_code == 200
    page = answer.text
    assert page.count("20:30</time>") == 5 and page.count("+09:00") == 5
    assert 'value="evening"' in page and "{&#34;a&#34;: 1}" in page and 'value="Asia/Tokyo"' in page
    assert "evening" not in {each.name for each in await world.app.schedules.list()}
    answer = await post(world, "/schedules/nightly/edit/preview", expression="15 4 * * *")
    assert answer.text.count("04:15</time>") == 5 and 'value="15 4 * * *"' in answer.text
    assert (await world.app.schedules.get("nightly")).expression == "0 3 * * *"
    assert len(await world.audit()) == before


async def test_the_form_of_an_edit_begins_with_its_fires(world: World) -> None:
    page = (await world.http.get("/schedules/nightly/edit", headers=DIALOG)).text
    assert page.count("03:00</time>") == 5
    await world.app.schedules.pause("nightly")
    page = (await world.http.get("/schedules/nightly/edit", headers=DIALOG)).text
    assert "paused: as if it were not" in page and page.count("03:00</time>") == 5


async def test_who_may_not_set_schedules_previews_none(world: World) -> None:
    for role in ("viewer", "operator"):
        answer = await world.http.get("/schedules-preview", headers={"X-Role": role}, params={"expression": "@hourly"})
        assert answer.status_code == 403
        answer = await post(world, "/schedules/nightly/edit/preview", role)
        assert answer.status_code == 403 and PAYLOAD not in answer.text


async def test_a_schedule_that_is_not_there_is_not_found(world: World) -> None:
    answer = await world.http.get(
        "/schedules-preview", headers=DIALOG, params={"expression": "@hourly", "name": "nothing"}
    )
    assert answer.status_code == 404


async def test_the_page_of_a_schedule_has_its_fires_on_the_clocks_of_its_zone(world: World) -> None:
    await world.app.schedules.add("tokyo", "0 9 * * *", "hello", {"name": "x"}, tz="Asia/Tokyo")
    page = (await world.http.get("/schedules/tokyo", headers={"X-Role": "admin"})).text
    assert page.count("09:00</time>") == 10 and page.count("+09:00") == 10
