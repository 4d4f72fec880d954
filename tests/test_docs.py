"""The documentation is tested: generated parts are current, code runs, links lead somewhere, nothing is left out."""

from __future__ import annotations

import ast
import asyncio
import codeop
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

import treadle
from treadle.cli import root as cli
from treadle.core.errors import TreadleError
from treadle.core.job import ErrorKind, State
from treadle.operate import doctor
from treadle.storages.postgres import drivers
from treadle.testing import sabotage

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
ALL = "\n".join(page.read_text() for page in PAGES)


def generator() -> ModuleType:
    sys.path.insert(0, str(DOCS))
    try:
        import generate

        return generate
    finally:
        sys.path.remove(str(DOCS))


GENERATED = [
    "reference/api.md",
    "reference/cli.md",
    "reference/settings.md",
    "queues.md",
    "retries.md",
    "guarantees.md",
    "metrics.md",
]
GENERATED += ["operate.md"]


@pytest.mark.parametrize("page", GENERATED)
def test_generated_parts_are_current(page: str) -> None:
    assert (DOCS / page).read_text() == generator().pages()[DOCS / page], "run make docs"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)


def _is_a_file(block: str) -> bool:
    try:
        compile(block, "<block>", "exec")
    except SyntaxError:
        return False
    return True


# A new user's first pages: their first block is this file, and what follows is pasted into `python -m asyncio`.
FILES = {ROOT / "README.md": "app.py", DOCS / "start.md": "shop.py"}
RUN = [page for page in PAGES if blocks(page) and page not in FILES]


@pytest.mark.parametrize("page", FILES, ids=lambda page: page.stem)
def test_a_first_page_can_be_pasted_in_an_empty_folder(page: Path, tmp_path: Path) -> None:
    """The blocks used to run in one namespace only: README's second one lacked an import, and a block of start.md was a
    SyntaxError at the prompt, which takes a line at the margin for more of the loop before it."""
    first, *pasted = blocks(page)
    assert f"`{FILES[page]}`" in page.read_text()
    (tmp_path / FILES[page]).write_text(first)
    # The last Enter is the user's; the prompt tells a block from what comes after by its empty line.
    typed = "\n".join([*pasted, "print('to the end')\n"])
    outside = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=typed,
        cwd=tmp_path,
        env=outside,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Error" not in done.stderr, done.stderr
    assert "Welcome, Ada!" in done.stdout
    assert "to the end" in done.stdout
    # The commands of the page that only look, on the database that the blocks have made.
    for line in command_lines(page):
        if re.match(r"treadle (jobs find|queues list) .*--url", line):
            command = [sys.executable, "-m", "treadle.cli", *shlex.split(line)[1:]]
            subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, timeout=60, check=True)


PROMPTED = [(page.stem, block) for page in PAGES for block in blocks(page) if not _is_a_file(block)]


@pytest.mark.parametrize("block", [block for _, block in PROMPTED], ids=[stem for stem, _ in PROMPTED])
def test_a_block_that_awaits_can_be_typed_at_the_prompt(block: str) -> None:
    """A block with `await` at the margin can stand in no file: it is for `python -m asyncio`, which reads lines."""
    prompt = codeop.CommandCompiler()
    prompt.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    typed: list[str] = []
    for line in [*block.splitlines(), ""]:
        typed.append(line)
        if prompt("\n".join(typed), "<prompt>") is not None:
            typed.clear()
    assert not any(typed), typed


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    """All ```python blocks of a page in one namespace, with top-level await, in an empty directory."""
    before = os.getcwd()
    os.chdir(tmp_path)
    namespace = {"__name__": f"docs_{page.stem}"}
    sys.modules[namespace["__name__"]] = ModuleType(namespace["__name__"])
    source = "\n".join(blocks(page))
    code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run() -> None:
        result = eval(code, namespace)
        if inspect.iscoroutine(result):
            await result
        for value in namespace.values():
            if isinstance(value, treadle.App):
                await value.close()

    try:
        asyncio.run(run())
    finally:
        os.chdir(before)
        del sys.modules[namespace["__name__"]]


def command_lines(page: Path) -> list[str]:
    """Whatever a page tells people to type: lines of shell blocks, and what stands in the running text."""
    text = page.read_text()
    shell = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    lines = [line for block in shell for line in block.splitlines()] + [" ".join(each.split()) for each in inline]
    found = [part.strip() for line in lines for part in re.split(r"\s[;|&](?:\s|$)|;\s", line.split("  #")[0])]
    return [each for each in found if re.match(r"treadle [a-z]", each) and "demo worker" not in each]


@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)], ids=lambda page: page.stem)
def test_every_command_that_a_page_tells_to_type_is_there(page: Path) -> None:
    for line in command_lines(page):
        words = [word for word in shlex.split(line.replace("…", "")) if word][1:]
        command: click.Command = cli
        while isinstance(command, click.Group):
            context = click.Context(command)
            found = command.get_command(context, words.pop(0)) if words else None
            if found is None:
                break
            command = found
        assert command is not cli, line
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        for word in words:
            if re.match(r"--?[a-z]", word, re.I):
                assert word.partition("=")[0] in known, f"{page.name}: {line}"


def test_every_test_that_a_promise_names_is_there() -> None:
    text = (DOCS / "guarantees.md").read_text()
    for path in re.findall(r"`(tests/[^`]*)`", text):
        assert (ROOT / path).exists(), path
    sabotages = {each.__name__ for each in sabotage.every()}
    named = re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text)
    assert named
    assert [name for name in named if name not in sabotages] == []


def test_every_public_name_is_mentioned() -> None:
    missing = [name for name in treadle.__all__ if name != "__version__" and not re.search(rf"\b{name}\b", ALL)]
    assert missing == []


def test_every_state_and_every_kind_of_error_is_mentioned() -> None:
    words = [state.value for state in State] + list(ErrorKind.__args__)  # type: ignore[attr-defined]
    assert [word for word in words if f"`{word}`" not in ALL] == []


def test_every_code_of_doctor_is_explained() -> None:
    """Fourteen codes, and four of them stood on a page. The table is generated; here it is held against the code."""
    package = Path(treadle.__file__).parent
    own = (package / "operate" / "doctor.py").read_text() + (package / "core" / "warnings.py").read_text()
    found = set(re.findall(r"TREADLE-D\d{3}", own.replace(own.partition("MEANINGS")[2].partition("}\n")[0], "")))
    assert found == doctor.MEANINGS.keys()
    text = "".join(path.read_text() for path in (package / "storages").rglob("*.py"))
    codes = {re.sub(r"\{.*\}", "*", code) for code in re.findall(r"\bFact\(\s*f?\"([^\"]+)\"", text)}
    assert codes - {"schema"} == doctor.STORAGE_MEANINGS.keys()  # `schema` is told as D003


def test_what_within_takes_is_listed() -> None:
    """Each kind of connection that the code knows; tests/storages/test_*_borrow.py show each of them."""
    table = (DOCS / "transactions.md").read_text().partition("| jobs in |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([A-Za-z0-9_.]+)`", table))
    known = {name for kind in drivers.KINDS for name in re.findall(r"[\w.]+", kind) if name != "sqlalchemy"}
    assert known | {"sqlite3.Connection"} <= named


def test_no_page_uses_what_is_internal() -> None:
    for page in PAGES:
        if page.parent.name != "adr":
            assert not re.search(r"\bapp\.(client|door|timetable|by_name|through|lend)\b", page.read_text()), page


def test_a_promise_of_seconds_names_its_storage() -> None:
    """README and workers.md promised a rescue "within two seconds" of everybody; on PostgreSQL it takes the lease."""
    for page in (ROOT / "README.md", DOCS / "workers.md", ROOT / "CHANGELOG.md"):
        said = re.findall(r"[^.:]*\bwithin two seconds[^.]*\.[^.]*\.", page.read_text())
        assert said
        assert all("SQLite" in each and "PostgreSQL" in each for each in said), said


def test_every_error_says_what_it_is() -> None:
    for name in treadle.__all__:
        found = getattr(treadle, name)
        if inspect.isclass(found) and issubclass(found, TreadleError):
            assert found.__doc__, name


def test_no_page_speaks_of_a_number_without_a_command_to_repeat_it() -> None:
    """Throughput belongs on the benchmark page, which names machine, versions and command."""
    for page in PAGES:
        benchmarks = ("benchmarks.md", "benchmarks-postgres.md", "benchmarks-redis.md", "0007-one-sqlite-writer.md")
        if page.name not in benchmarks:
            assert not re.search(r"[\d,]{4,} jobs/s", page.read_text()), page
