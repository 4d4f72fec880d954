"""Every label of a page is either an ordinary word or explained in the help; and no page speaks in riddles."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import treadle.web
from treadle.core import glossary

from .world import World, world_on

pytestmark = pytest.mark.anyio

TEMPLATES = sorted((Path(treadle.web.__file__).parent / "templates").glob("*.html"))
PAGES = Path(treadle.web.__file__).parent / "pages"
CLI = Path(treadle.web.__file__).parents[1] / "cli"

# Columns and tiles whose names need no explanation.
ORDINARY = {
    "act", "actions", "attempt", "by", "by queue", "by state", "by task", "changed", "code", "cpu", "detail", "from",
    "holder", "job", "jobs", "last", "last 30 fires", "last hour", "left", "left now", "limit", "lock", "longest",
    "memory", "next", "pod", "pods", "queue", "queues", "rate", "result", "runs", "runs over time", "schedule",
    "setting", "since", "slot", "slots", "state", "taken, last second", "task", "tasks and queues", "time (utc)", "to",
    "took", "up", "value", "version", "what", "when", "who", "at once", "failed attempts", "share of all run time",
}  # fmt: skip
_LABELS = re.compile(r'<th scope="col"[^>]*>([^<{]+)</th>|<span class="name">([^<{]+)</span>')
# A label with a percentile or a span of time is that of the word alone.
_PLAIN = re.compile(r" p\d\d.*| / .*|, 24 h", re.IGNORECASE)

RIDDLES = re.compile(
    r"\b(?:did not end well|end(?:ed|s)? (?:well|badly)|somebody|anybody|whoever|nobody|knows of it|in vain"
    r"|what is (?:told|said)|needs you)\b",
    re.IGNORECASE,
)
# What a reader sees: text between tags and attributes that are read; strings of the pages' code.
_SEEN = re.compile(r'>([^<>]+)<|(?:title|aria-label|placeholder)="([^"]*)"')
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)+)"')


def labels() -> set[str]:
    found = {one or two for path in TEMPLATES for one, two in _LABELS.findall(path.read_text())}
    return {_PLAIN.sub("", html.unescape(each).strip()) for each in found if each.strip()}


def test_every_label_is_ordinary_or_explained() -> None:
    known = {each.lower() for each in glossary.words()} | ORDINARY
    unknown = sorted(each for each in labels() if each.lower() not in known)
    assert unknown == [], "explain them in core/glossary.py, or call them ordinary here"
    assert {"Oldest", "Drains in", "Per min", "Beat", "Loop lag"} <= labels()  # or the test would find nothing


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_page_speaks_in_riddles(path: Path) -> None:
    text = re.sub(r"\{#.*?#\}", "", path.read_text(), flags=re.DOTALL)
    seen = [one or two for one, two in _SEEN.findall(text)] + _STRING.findall(text)
    assert [each for each in seen if RIDDLES.search(each)] == []


@pytest.mark.parametrize(
    "path",
    [*sorted(PAGES.glob("*.py")), CLI / "top_view.py", CLI / "top_screen.py", CLI / "stats.py", CLI / "queues.py"],
    ids=lambda path: path.name,
)
def test_no_question_of_a_page_speaks_in_riddles(path: Path) -> None:
    code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
    lines = [line for line in code.splitlines() if not line.lstrip().startswith(("#", "from", "import"))]
    strings = [each for line in lines for each in _STRING.findall(line.partition("  # ")[0])]
    assert [each for each in strings if RIDDLES.search(each)] == []


async def test_the_help_explains_every_label_without_a_script_and_in_a_dialog(tmp_path: Path) -> None:
    async with world_on(tmp_path / "web.db", filled=False, pages=True) as world:
        page = (await _help(world)).replace("\n", " ")
        dialog = await _help(world, **{"HX-Request": "true", "Treadle-Dialog": "true"})
    for shown in (page, dialog):
        told = dict(re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", shown))
        told = {html.unescape(label): html.unescape(says) for label, says in told.items()}
        assert told == glossary.words()
    assert "<details open>" in page and "<details open>" not in dialog


async def _help(world: World, **headers: str) -> str:
    answer = await world.http.get("/help", headers={"X-Role": "viewer", **headers})
    assert answer.status_code == 200
    return answer.text
