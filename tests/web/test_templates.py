"""What the Content-Security-Policy forbids, and what would evaluate text as code, is in no template and no script."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from treadle.web.pages import assets

HERE = Path(assets.__file__).parent.parent
TEMPLATES = sorted((HERE / "templates").glob("*.html"))
SCRIPTS = sorted((HERE / "static").glob("*.js"))

FORBIDDEN = {
    "an inline style": re.compile(r"\sstyle\s*="),
    "an inline handler": re.compile(r"\son[a-z]+\s*=\s*[\"'{]"),
    "an inline script": re.compile(r"<script(?![^>]*\ssrc=)"),
    "a style element": re.compile(r"<style"),
    "an attribute that evaluates": re.compile(r"hx-on|hx-vals\s*=\s*[\"']js:|hx-vars|javascript:"),
    "another host": re.compile(r"(?:src|href|action)\s*=\s*[\"'](?:https?:)?//"),
    "markup that is not escaped": re.compile(r"\|\s*safe\b(?!\s*}}</symbol>)"),
}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_needs_an_exception(path: Path) -> None:
    text = path.read_text()
    assert [what for what, pattern in FORBIDDEN.items() if pattern.search(text)] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_evaluates_or_writes_markup(path: Path) -> None:
    text = path.read_text()
    for word in ("eval(", "new Function", "innerHTML", "insertAdjacentHTML", "document.write", "confirm(", "alert("):
        assert word not in text, word


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_served_without_the_lines_that_are_comments(path: Path) -> None:
    _, served = assets.found()
    wrote, sent = path.read_text().splitlines(), served[path.name].body.decode().splitlines()
    assert len(sent) == len(wrote)
    for line, told in zip(wrote, sent, strict=True):
        assert told == ("" if line.strip().startswith(("//", "/**")) else line)
    assert path.read_text().count("`") % 2 == 0  # a text over several lines could hold what looks like a comment
    assert all(line.count("`") % 2 == 0 for line in wrote), "no template is longer than its line"


def test_budgets() -> None:
    _, served = assets.found()
    assert sum(len(served[path.name].packed) for path in SCRIPTS) <= 22_000  # ADR 43
    assert len(gzip.compress((HERE / "static" / "treadle.css").read_bytes(), 9)) <= 14_000  # uPlot's is 0.8 KB
