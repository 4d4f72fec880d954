"""The API is checked as its users will check it: strictly, by two checkers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[1]
MARK = "# error"


def marked(file: str) -> set[int]:
    lines = (FOLDER / file).read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(MARK)}


def pyright(file: str) -> dict[int, str]:
    done = run("-m", "pyright", "--outputjson", str(FOLDER / file))
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert not [each for each in found if "range" not in each], found
    return {each["range"]["start"]["line"] + 1: each["message"] for each in found if each["severity"] == "error"}


def mypy(file: str) -> dict[int, str]:
    cache = ROOT / ".mypy_cache"
    done = run("-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={cache}", str(FOLDER / file))
    found = re.findall(r"^(.+?):(\d+): error: (.+)$", done.stdout, re.MULTILINE)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert not [each for each in found if not each[0].endswith(file)], done.stdout
    return {int(line): message for _, line, message in found}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("checker", [pyright, mypy])
def test_code_as_users_write_it_is_clean(checker: object) -> None:
    assert callable(checker)
    assert checker("good.py") == {}


@pytest.mark.slow
@pytest.mark.parametrize("checker", [pyright, mypy])
def test_every_planted_mistake_is_reported_and_nothing_else(checker: object) -> None:
    assert callable(checker)
    found = checker("bad.py")
    assert {line: found.get(line, "not reported") for line in found.keys() ^ marked("bad.py")} == {}
