"""Texts on pages: none turns the direction of what follows, none hides; what is sent back or copied stays as it is."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from treadle.core.job import NewJob
from treadle.web.pages import frame

from .world import World, world_on

pytestmark = pytest.mark.anyio

TURNED = "safe\u202efdp.exe"
ISOLATED = "a\u2066b\u200bc"
ID = "01a1ed78-97ba-7106-8352-43c5a3019205"
HIDDEN = re.compile("[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f]")


@pytest.fixture
async def paged(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", pages=True) as made:
        yield made


def shown(source: str, **values: Any) -> str:
    return frame.templates().from_string(source).render(values)


@pytest.mark.parametrize(
    ("source", "html"),
    [
        ("{{ it }}", "safe\\u202efdp.exe"),
        ('<a title="{{ it }}">', '<a title="safe\\u202efdp.exe">'),
        ("{{ it|upper }}", "SAFE\\u202eFDP.EXE"),
        ("{{ p.name(it) }}", "<bdi>safe\\u202efdp.exe</bdi>"),
        ('<input value="{{ it|exact }}">', f'<input value="{TURNED}">'),
        ("{{ '<' ~ it|exact }}", "&lt;safe\\u202efdp.exe"),
        ("{{ [it]|join }}", "safe\\u202efdp.exe"),
    ],
)
def test_a_text_shows_all_its_characters(source: str, html: str) -> None:
    assert shown(source, it=TURNED) == html


def test_what_is_exact_is_still_escaped() -> None:
    assert shown('<input value="{{ it|exact }}">', it='"><b>') == '<input value="&#34;&gt;&lt;b&gt;">'


def test_lines_and_ordinary_writing_stay() -> None:
    assert shown("{{ it }}", it="one\n\ttwo שלום 👩‍🚀") == "one\n\ttwo שלום 👩‍🚀"


def test_a_long_name_has_its_end_and_its_whole_in_the_title() -> None:
    name = "<b>" + "n" * 117 + "the-rest"
    html = shown("{{ p.name(it) }}", it=name)
    whole = name.replace("<", "&lt;").replace(">", "&gt;")
    assert f'title="{whole}"' in html
    assert html.endswith("</span>nnthe-rest</bdi>")
    assert re.sub("<[^>]*>", "", html) == whole  # in one piece for whoever copies it


async def test_no_page_has_a_character_that_turns_or_hides(paged: World) -> None:
    job = NewJob(id=ID, task=TURNED, queue=ISOLATED, tags=(TURNED,), reason=ISOLATED, args='{"a": "\u202e"}')
    await paged.app.storage.insert([job])
    seen = ""
    for path in ("/", "/jobs", f"/jobs/{ID}", "/queues", f"/jobs/{ID}/cancel"):
        page = await paged.http.get(path, headers={"X-Role": "admin"})
        assert page.status_code == 200, path
        text = re.sub(r'(?:data-copy|value)="[^"]*"', "", page.text)
        assert not HIDDEN.search(text), path
        seen += text
    assert "safe\\u202efdp.exe" in seen
    assert "a\\u2066b\\u200bc" in seen


async def test_the_api_and_a_form_have_the_text_itself(paged: World) -> None:
    job = NewJob(id=ID, task="t", queue="q", tags=(TURNED,))
    await paged.app.storage.insert([job])
    answer = await paged.get(f"/jobs/{ID}")
    assert answer.json()["tags"] == [TURNED]
    page = await paged.http.get("/jobs", params={"filter": f'tag:"{TURNED}"'}, headers={"X-Role": "admin"})
    assert TURNED in re.findall(r'id="filter"[^>]*value="([^"]*)"|$', page.text)[0].replace("&#34;", "")
    assert ID in page.text
