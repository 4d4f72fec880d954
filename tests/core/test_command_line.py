"""Commands that follow a form: what is typed arrives as one word, whatever it is, and never as another option."""

from __future__ import annotations

import shlex

import pytest

from treadle.core.command_line import Command, Part, command, option, quote, render

from .command_cases import ANSWER, CASES, ENQUEUE, HOSTILE, PAUSE


@pytest.mark.parametrize(("template", "values", "text", "whole"), CASES)
def test_a_command_for_typed_values(template: Command, values: dict[str, str], text: str, whole: bool) -> None:
    shown = render(template, values)
    assert (shown.text, shown.whole) == (text, whole)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_is_one_word(value: str) -> None:
    words = shlex.split(render(PAUSE, {"reason": value}).text)
    assert words == ["treadle", "queues", "pause", "mail", "--reason", value]
    words = shlex.split(render(ANSWER, {"value": value}).text)
    dashed = value.startswith("-")
    assert words == ["treadle", "jobs", "answer", *(["--"] if dashed else []), "1", value]


@pytest.mark.parametrize("value", ["42", "true", "null", '"x"', "[1]", '{"a":1}', " 1 "])
def test_text_that_reads_as_json_stays_text(value: str) -> None:
    words = shlex.split(render(ENQUEUE, {"arg-name": value, "arg-times": "1"}).text)
    assert words[3].startswith('name="') and words[4] == "times=1"


def test_text_that_is_half_of_a_sign_is_left_as_it_is() -> None:
    part = Part(field="it", prefix="it=", text=True)
    assert render(command("treadle", part), {"it": "\ud800"}).text == "treadle 'it=\ud800'"


def test_an_option_is_called_like_its_field() -> None:
    assert option("keep_failed").flag == "--keep-failed"


@pytest.mark.parametrize("word", HOSTILE)
def test_words_are_quoted_as_a_shell_needs_it(word: str) -> None:
    assert quote(word) == (word if word == "…" else shlex.quote(word))
