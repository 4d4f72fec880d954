"""`treadle` itself: help, names, exit codes, pipes, and how long it takes to start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from treadle import __version__, cli
from treadle.cli.command import Root, Verb, Verbs

from .conftest import Store, Treadle


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        yield (*path, name)
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))


ALL = [path for path in commands(cli.root) if path != ("demo",)]


def test_the_commands_of_this_stage_are_there() -> None:
    there = {path[0] for path in ALL}
    assert there >= {"worker", "enqueue", "jobs", "queues", "pods", "db", "doctor", "operations", "audit"}
    assert {path[1] for path in ALL if path[0] == "jobs" and len(path) > 1} >= {
        *("find", "show", "cancel", "revive", "reschedule", "delete", "move", "priority", "failures")
    }


@pytest.mark.parametrize("path", [(), *ALL], ids=" ".join)
def test_every_help_has_an_example_that_names_the_command(path: tuple[str, ...], treadle: Treadle) -> None:
    ran = treadle(*path, "--help")
    assert ran.code == 0
    _, _, examples = ran.out.partition("\nExample")
    assert f"  treadle {' '.join(path)}".rstrip() in examples


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_json_quiet_and_traceback(path: tuple[str, ...]) -> None:
    command: click.Command = cli.root
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    if isinstance(command, Verbs):
        return
    assert isinstance(command, Verb)
    flags = {flag for param in command.params for flag in param.opts}
    assert {"--json", "--quiet", "--traceback", "--url", "--app"} <= flags


def test_the_version_is_told(treadle: Treadle) -> None:
    assert treadle("--version").out == f"treadle {__version__}\n"


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete")])
def test_the_completion_of_each_shell(shell: str, word: str, treadle: Treadle) -> None:
    ran = treadle("--completion", shell)
    assert ran.code == 0
    assert word in ran.out
    assert "_TREADLE_COMPLETE" in ran.out


def test_the_shell_is_told_the_commands(folder: Path) -> None:
    environ = {**os.environ, "_TREADLE_COMPLETE": "bash_complete", "COMP_WORDS": "treadle jo", "COMP_CWORD": "1"}
    line = [sys.executable, "-m", "treadle.cli"]
    ran = subprocess.run(line, env=environ, cwd=folder, capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["plain,jobs"]


def test_an_unknown_command_is_a_usage_error_with_a_suggestion(treadle: Treadle) -> None:
    for line, meant in ((["jbos"], "jobs"), (["jobs", "fnd"], "find")):
        ran = treadle(*line)
        assert ran.code == 2
        assert f'did you mean "{meant}"?' in ran.err
        assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("line", [[], ["jobs"]])
def test_a_group_alone_shows_its_help(line: list[str], treadle: Treadle) -> None:
    ran = treadle(*line)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: treadle")
    assert "..." not in ran.err.partition("Commands:")[2]


def test_a_wrong_option_is_one_line_and_names_the_help(treadle: Treadle) -> None:
    ran = treadle("jobs", "find", "--limit", "many")
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert line.startswith("treadle: ")
    assert "see `treadle jobs find --help`" in line


def test_wrong_settings_end_with_78_and_a_line_for_each(treadle: Treadle, folder: Path) -> None:
    (folder / "treadle.toml").write_text('slots = 0\nlog_levle = "info"\n')
    ran = treadle("queues", "list")
    assert ran.code == 78
    lines = ran.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("treadle: ") for line in lines)


def test_a_traceback_is_shown_on_demand_only(treadle: Treadle) -> None:
    assert "Traceback" not in treadle("queues", "list").err
    ran = treadle("queues", "list", "--traceback")
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("treadle: no such database")


def test_a_looker_does_not_make_a_database(treadle: Treadle, folder: Path) -> None:
    for line in (["jobs", "find"], ["queues", "list"], ["pods", "list"], ["db", "status"], ["db", "backup", "b.db"]):
        ran = treadle(*line)
        assert ran.code == 5, line
        assert ran.err.startswith("treadle: no such database: treadle.db"), line
        assert len(ran.err.splitlines()) == 1
    assert list(folder.iterdir()) == []


@pytest.mark.journey
def test_a_pipe_that_closes_early_is_no_error(store: Store, folder: Path) -> None:
    async def fill(app: object) -> None:
        for _ in range(3):
            await app.enqueue_many([_bound(app) for _ in range(1000)])  # type: ignore[attr-defined]

    store.run(fill)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
    line = f"{sys.executable} -m treadle.cli jobs find --limit 3000 --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", line], cwd=folder, env=environ, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == "0"
    assert ran.stderr == ""


def _bound(app: object) -> object:
    from treadle import Call
    from treadle.context.context import Options

    return Call("shop.welcome", '{"user_id":1}', Options(queue="mail"))


@pytest.mark.journey
def test_interrupted_is_130_without_a_word_more(folder: Path) -> None:
    line = [sys.executable, "-m", "treadle.cli", "enqueue", "shop.welcome", "--wait"]
    with subprocess.Popen(line, cwd=folder, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stderr is not None
        try:
            assert any("waiting for its end" in said for said in ran.stderr)
            ran.send_signal(signal.SIGINT)
            _, said = ran.communicate(timeout=30)
        finally:
            ran.kill()
    assert (ran.returncode, said) == (130, "")


def test_a_storage_that_cannot_be_reached_is_5(
    treadle: Treadle, shop: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for line in (["enqueue", "shop.welcome"], ["db", "migrate"], ["worker", "-A", shop, "-q", "mail"]):
        ran = treadle(*line, "--url", f"sqlite:///{folder}/nowhere/treadle.db")
        assert ran.code == 5, line
        assert "there is no directory" in ran.err
        assert len(ran.err.splitlines()) == 1
    assert "new database" not in caplog.text


@pytest.mark.journey
def test_rich_and_the_heavy_modules_are_imported_only_by_what_needs_them(folder: Path) -> None:
    script = (
        "import sys\nfrom treadle.cli import root\n"
        "try: root.main({args})\nexcept SystemExit: pass\n"
        "print([name for name in ('rich', 'textual', 'tomllib', 'treadle.runtime.pod') if name in sys.modules])"
    )
    for args in ("['--version']", "['enqueue', 'shop.welcome', 'user_id=1', '--queue', 'mail']"):
        line = [sys.executable, "-c", script.replace("{args}", args)]
        ran = subprocess.run(line, cwd=folder, capture_output=True, text=True)
        assert ran.stdout.splitlines()[-1] == "[]", ran.stderr


COUNTED = """
import sys
import asyncio, click, dataclasses, logging, msgspec, pathlib  # are another number in every version of Python
calls = 0
def count(frame, event, arg):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)
try:
    from treadle.cli import root
    root.main(%r)
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.setprofile(None)
print(calls)
"""


@pytest.mark.journey
@pytest.mark.parametrize(
    ("line", "most"),
    [(["--version"], 43_000), (["enqueue", "shop.welcome", "user_id=1", "--queue", "mail"], 88_000)],
)
def test_it_starts_with_little_work(line: list[str], most: int, folder: Path) -> None:
    """Counted in calls, which are the same on every machine under every load; `make bench` has the milliseconds. A
    thousand calls are about a millisecond. What usually breaks this is an import at the head of a module that
    everybody loads: put it where it is needed."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    for _ in range(2):  # the first one compiles the modules, as an installation does
        ran = subprocess.run(
            [sys.executable, "-c", COUNTED % line], cwd=folder, env=environ, capture_output=True, text=True, check=True
        )
    assert int(ran.stdout.split()[-1]) < most


def test_the_modules_named_by_the_root_are_commands() -> None:
    assert isinstance(cli.root, Root)
    for path in ALL:
        if len(path) == 1:
            assert cli.root.get_command(click.Context(cli.root), path[0]) is not None
