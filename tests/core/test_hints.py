from __future__ import annotations

import doctest

import pytest

from treadle.core import hints
from treadle.core.backoff import Retry
from treadle.core.hints import ATTRIBUTES, no_attribute, unknown_option


def test_the_examples_hold() -> None:
    assert doctest.testmod(hints).failed == 0


@pytest.mark.parametrize(
    ("option", "place", "said"),
    [
        ("retries", "@task", "; did you mean retry=n + 1, or retry=Retry(max_attempts=n + 1)? (attempts count"),
        ("retries", "using", "; did you mean max_attempts=n + 1? (attempts count the first run too)"),
        ("countdown", "@task", '; did you mean task.using(delay="10s").enqueue(…)?'),
        ("countdown", "using", '; did you mean delay="10s"?'),
        ("countdown", "enqueue", '; did you mean task.using(delay="10s").enqueue(…)?'),
        ("queue", "enqueue", "; did you mean task.using(queue=…).enqueue(…)?"),
        ("autoretry_for", "Retry", "; did you mean retry_on=(…,)?"),
        ("bind", "@task", "; did you mean a first parameter `ctx: Context`, which the worker fills?"),
        ("broker", "App", '; did you mean App("sqlite:///jobs.db")'),
        ("acks_late", "@task", ", and needs none: a job is finished after its run, always"),
        ("prioritty", "@task", "; did you mean priority?"),
        ("zzz", "@task", "'zzz'"),
    ],
)
def test_a_word_of_another_system_is_translated(option: str, place: hints.Place, said: str) -> None:
    text = unknown_option("it", option, ["priority", "name"], at=place)
    assert text.startswith(f"it has no {'parameter' if place == 'enqueue' else 'option'} {option!r}")
    assert said in text


def test_a_parameter_of_the_users_own_comes_first() -> None:
    assert unknown_option("send", "delays", ["delay_of"], at="enqueue").endswith("did you mean delay_of?")
    assert unknown_option("send", "eta", ["etas"], at="enqueue").endswith("did you mean etas?")


def test_an_attribute_of_another_system_is_translated() -> None:
    assert no_attribute("task", "task a", "delay").endswith(
        "did you mean await task.enqueue(…), or task.enqueue_sync(…)?"
    )
    assert no_attribute("ctx", "a Context", "nothing") == "a Context has no attribute 'nothing'"
    assert {*ATTRIBUTES} == {"task", "app", "handle", "ctx"}


def test_a_retry_says_what_it_is_called_here() -> None:
    with pytest.raises(TypeError, match=r"Retry has no option 'max_retries'; did you mean max_attempts=n \+ 1\?"):
        Retry(max_retries=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Retry has no option 'factr'; did you mean factor\?"):
        Retry(factr=3)  # type: ignore[call-arg]
    assert Retry(3, base="1s").max_attempts == 3
