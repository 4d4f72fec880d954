"""Every example does what its page says: the page's commands are run, and its output is looked for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDERS = sorted(page.parent.name for page in EXAMPLES.glob("*/README.md"))
LIMIT = 60


def block(page: str, language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, f"a page has one {language} block, not {len(found)}"
    return str(found[0])


def run(commands: str, folder: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    script = f"set -e\n{commands}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shows(line: str, wanted: str) -> bool:
    """`…` on a page stands for anything."""
    return fnmatchcase(line.rstrip(), wanted.replace("[", "[[]").replace("…", "*"))


def test_there_are_examples() -> None:
    assert {"hello", "pool_node", "pool_sh", "processes", "retries", "transactional"} <= set(FOLDERS)


@pytest.mark.slow
@pytest.mark.journey
@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_does_what_its_page_says(name: str, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("*.db*", "__pycache__"))
    page = (folder / "README.md").read_text("utf-8")
    printed = iter(run(block(page, "sh"), folder).splitlines())
    for wanted in block(page, "text").splitlines():
        # In this order, with other lines in between: an iterator goes on where the last look ended.
        assert any(shows(line, wanted) for line in printed), f"{name}: nothing printed like {wanted!r}"
