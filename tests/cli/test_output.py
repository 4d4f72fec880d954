from __future__ import annotations

import sys

import pytest

from treadle.cli.output import Output


class Terminal:
    def __init__(self, stream: object) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return True

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    monkeypatch.setattr(sys, "stdout", Terminal(sys.stdout))
    monkeypatch.setattr(sys, "stderr", Terminal(sys.stderr))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return capsys


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
    assert capsys.readouterr().out.splitlines() == ["id  error", f"1   {long}", "22  two lines"]


def test_a_terminal_has_colours(terminal: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.line(out.paint("failed"))
    assert "\x1b[31mfailed" in terminal.readouterr().out


def test_a_terminal_has_a_table_in_which_markup_is_text(terminal: pytest.CaptureFixture[str]) -> None:
    Output().table(("state", "error"), [("failed", "[bold]no[/bold] markup")])
    said = terminal.readouterr().out
    assert "[bold]no[/bold] markup" in said


@pytest.mark.parametrize("how", ["NO_COLOR", "--quiet", "--json"])
def test_colours_can_be_switched_off(
    how: str, terminal: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    out = Output(quiet=how == "--quiet", as_json=how == "--json")
    out.line(out.paint("failed"))
    out.table(("state",), [("failed",)])
    assert "\x1b" not in terminal.readouterr().out


def test_no_bar_where_nobody_watches(terminal: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert Output().shows_progress
    assert not Output(quiet=True).shows_progress
    monkeypatch.undo()
    assert not Output().shows_progress


def test_fields_are_aligned_and_keep_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Output().fields([("id", "7"), ("state", "failed"), ("trace", "one\ntwo")])
    assert capsys.readouterr().out.splitlines() == ["id     7", "state  failed", "trace  one", "       two"]
