"""The log on a job's page: bounded, searched after masking, and for those who may see payloads."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from treadle.core.logline import LogLine

from .world import CANARY, World, world_on

pytestmark = pytest.mark.anyio
LARGEST = 300_000


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", pages=True) as made:
        yield made


async def page_of(world: World, id: str, role: str = "admin", **query: str) -> str:
    answer = await world.http.get(f"/jobs/{id}", headers={"X-Role": role}, params=query)
    assert answer.status_code == 200
    return answer.text


@pytest.mark.parametrize("text", ["x" * 8000, "<'\"&>" * 1600, "\u202e" * 2700, "short"])
async def test_a_huge_log_leaves_the_page_small(world: World, text: str) -> None:
    id = world.ids["ready"]
    lines = [LogLine(id, n + 1, 1 + n // 8 % 200, "info", f"{n} {text}") for n in range(1600)]
    for start in range(0, len(lines), 200):
        await world.app.storage.record_logs(lines[start : start + 200])
    page = await page_of(world, id)
    assert len(page.encode()) < LARGEST
    newest = (await world.app.jobs.logs(id, limit=1))[0]
    assert f'id="l{newest.n}"' in page  # the newest are shown
    assert "older lines are left out here" in page and f"treadle jobs logs {id} --limit 10000" in page
    assert len((await page_of(world, id, log="e")).encode()) < LARGEST


async def test_how_many_lines_are_left_out(world: World) -> None:
    id = world.ids["ready"]
    await world.app.storage.record_logs([LogLine(id, n, 1, "info", "y" * 40) for n in range(1, 1001)])
    page = await page_of(world, id)
    shown = page.count('<div class="line')
    assert f"{1000 - shown} older lines are left out here" in page and 0 < shown < 1000
    assert "At least" not in page
    await world.app.storage.record_logs([LogLine(id, n, 2, "info", "y" * 40) for n in range(2001, 2901)])
    page = await page_of(world, id)
    assert re.search(r"At least \d+ older lines are left out here", page)


async def test_the_log_is_searched_as_far_as_it_is_kept(world: World) -> None:
    id = world.ids["ready"]
    await world.app.storage.record_logs([LogLine(id, n, 1, "info", f"step {n}.") for n in range(1, 1001)])
    await world.app.storage.record_logs([LogLine(id, n, 2, "error", f"step {n}.") for n in range(1001, 2001)])
    page = await page_of(world, id, log="step 7.")  # far beyond the newest lines
    assert page.count('<div class="line') == 1 and "1 of 2,000 lines have “step 7.”" in page
    assert '<details id="log-of-1" open>' in page
    assert "No line has it." in await page_of(world, id, log="nothing of the kind")
    assert "0 of 2,000 lines" in await page_of(world, id, log="nothing of the kind")


async def test_nobody_finds_a_secret_by_looking_for_it(world: World) -> None:
    id = world.ids["ready"]
    await world.app.storage.record_logs([LogLine(id, 1, 1, "info", f"password={CANARY}")])
    page = await page_of(world, id, log=CANARY)
    assert "0 of 1 lines" in page and "No line has it." in page
    assert "password=***" in await page_of(world, id)


async def test_a_viewer_has_no_log(world: World) -> None:
    id = world.ids["ready"]
    await world.app.storage.record_logs([LogLine(id, 1, 1, "info", "something secret")])
    page = await page_of(world, id, "viewer", log="something")
    assert "<h2>Logs</h2>" not in page and "something secret" not in page
