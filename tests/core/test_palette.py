"""What typed words may mean: verbs by their own words and by others', subjects by parts of their names."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core.palette import MOST, MOST_OF_A_VERB, Kind, Verb, choose

QUEUES = ["bulk", "email", "mail", "mail-retry", "search"]
PAUSED = {"bulk"}


def _to(act: str) -> Any:
    return lambda name: (f"/queues/{name}/{act}", {})


VERBS: list[Verb[str]] = [
    Verb(title="Open queue {}", others="show", to=_to(""), asks=False),
    Verb(title="Pause queue {}", others="stop hold", to=_to("pause"), fits=lambda name: name not in PAUSED),
    Verb(title="Resume queue {}", others="start", to=_to("resume"), fits=lambda name: name in PAUSED),
    Verb(title="Revive failures of queue {}", others="retry", to=_to("revive")),
]
KIND: Kind[Any] = Kind(word="queue", subjects=QUEUES, name=str, verbs=VERBS)


def titles(text: str, *kinds: Kind[Any]) -> list[str]:
    return [choice.title for choice in choose(text, kinds or (KIND,))]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("pause mail", ["Pause queue mail", "Pause queue mail-retry", "Pause queue email"]),
        ("PAUSE  Mail", ["Pause queue mail"]),
        ("stop mail", ["Pause queue mail"]),
        ("mail pau", ["Pause queue mail"]),
        ("retry failures of mail", ["Revive failures of queue mail", "Revive failures of queue mail-retry"]),
        ("retry retry", ["Revive failures of queue mail-retry"]),
        ("resume", ["Resume queue bulk"]),
        ("mail", ["Open queue mail", "Pause queue mail", "Revive failures of queue mail", "Open queue mail-retry"]),
        ("sear", ["Open queue search", "Pause queue search"]),
    ],
)
def test_the_likeliest_comes_first(text: str, first: list[str]) -> None:
    assert titles(text)[: len(first)] == first


def test_a_verb_that_makes_no_sense_is_not_offered() -> None:
    assert "Pause queue bulk" not in titles("pause bulk") and "Resume queue mail" not in titles("resume mail")


def test_each_word_must_be_found() -> None:
    assert titles("pause nothing") == []
    assert titles("") == [] and titles("   ") == []


def test_a_choice_says_where_it_leads() -> None:
    (choice, *_) = choose("pause mail", [KIND])
    assert (choice.kind, choice.path, choice.query, choice.asks) == ("queue", "/queues/mail/pause", {}, True)
    assert not choose("open mail", [KIND])[0].asks


def test_many_subjects_give_a_few_choices() -> None:
    many: Kind[Any] = Kind(word="queue", subjects=[f"queue-{n}" for n in range(500)], name=str, verbs=VERBS)
    assert len(titles("queue", many)) == MOST
    assert len(titles("pause", many)) == MOST_OF_A_VERB
    assert titles("pause queue-417", many)[0] == "Pause queue queue-417"


def test_more_words_than_anybody_types_are_left_out() -> None:
    assert titles("pause mail " + "pause " * 50)[0] == "Pause queue mail"
