from __future__ import annotations

import json
import sys
from collections.abc import Callable

import click
import pytest

from treadle.cli.output import Output


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes a terminal of what is printed to. Called in the test: pytest changes the streams after its fixtures."""

    def begin() -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)

    return begin


def test_data_goes_to_stdout_and_words_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.line("a line")
    out.data({"id": 1, "task": "grüße"})
    out.say("a word")
    captured = capsys.readouterr()
    assert captured.out == 'a line\n{"id": 1, "task": "grüße"}\n'
    assert captured.err == "a word\n"


def test_quiet_silences_words_but_no_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(quiet=True)
    out.say("a word")
    out.warn("take care")
    assert capsys.readouterr().err == "treadle: take care\n"


def test_outside_a_terminal_a_table_is_plain_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    Output().table(("id", "error"), [("1", long), ("22", "two\nlines")])
    assert capsys.readouterr().out.splitlines() == ["id  error", f" 1  {long}", "22  two lines"]


def test_a_terminal_has_colours(terminal: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    terminal()
    out = Output()
    out.line(out.paint("failed"))
    assert "\x1b[31mfailed" in capsys.readouterr().out


def test_on_a_terminal_a_table_fits_and_leaves_out_what_says_nothing(
    terminal: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal()
    monkeypatch.setenv("COLUMNS", "20")
    Output().table(
        ("id", "gate", "state", "error"), [("1", "", "failed", "a very long message"), ("2", "", "ready", "")]
    )
    head, first, second = click.unstyle(said := capsys.readouterr().out).splitlines()
    assert head == "id  state   error"
    assert first == " 1  failed  a very …"
    assert second == " 2  ready"
    assert "\x1b[31mfailed" in said


@pytest.mark.parametrize("how", ["NO_COLOR", "--quiet", "--json"])
def test_colours_can_be_switched_off(
    how: str,
    terminal: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal()
    if how == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    out = Output(quiet=how == "--quiet", as_json=how == "--json")
    out.line(out.paint("failed"))
    out.table(("state",), [("failed",)])
    assert "\x1b" not in capsys.readouterr().out


def test_no_bar_where_nobody_watches(terminal: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    assert not Output().shows_progress
    terminal()
    assert Output().shows_progress
    assert not Output(quiet=True).shows_progress


def test_fields_are_aligned_and_keep_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Output().fields([("id", "7"), ("state", "failed"), ("trace", "one\ntwo")])
    assert capsys.readouterr().out.splitlines() == ["id     7", "state  failed", "trace  one", "       two"]


def test_what_a_job_brought_along_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.table(("task",), [("\x1b[2Jgone\x9b1m",)])
    out.fields([("reason", "one\x1b]0;title\x07\ntwo\u2028\tthree")])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "\x9b" not in said
    assert said.splitlines()[-1].endswith("two\\u2028\tthree")  # lines and tabs stay what they are


PLANTED = "a\x1b[2J\x9b1mb\u202efdp.exe\u2028c\r\x07\U000e0041\ud800"
SHOWN = "a\\u001b[2J\\u009b1mb\\u202efdp.exe\\u2028c\\r\\u0007\\udb40\\udc41\\ud800"


@pytest.mark.parametrize("how", ["line", "say", "warn", "table", "fields", "csv"])
def test_every_way_to_print_shows_what_does_not_show_itself(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    match how:
        case "table":
            out.table(("name",), [(PLANTED,)])
        case "fields":
            out.fields([("name", PLANTED)])
        case "csv":
            out.csv(("name",), [(PLANTED,)])
        case _:
            getattr(out, how)(PLANTED)
    said = "".join(capsys.readouterr()).replace("\r\n", "\n")
    assert SHOWN in said
    assert all(line.isprintable() for line in said.split("\n"))


def test_colours_of_ours_stay_beside_what_was_planted(
    terminal: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal()
    out = Output()
    out.line(f"{out.paint('failed')} {PLANTED}")
    assert capsys.readouterr().out == f"\x1b[31mfailed\x1b[0m {SHOWN}\n"


def test_json_is_the_same_value_with_nothing_hidden_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).data({"name": PLANTED, "grüße": "שלום 👩‍🚀"})
    (said,) = capsys.readouterr().out.splitlines()
    assert json.loads(said) == {"name": PLANTED, "grüße": "שלום 👩‍🚀"}
    assert "\u202e" not in said and "\x9b" not in said
    assert "שלום 👩‍🚀" in said
