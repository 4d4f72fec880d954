"""What the labels mean, in one table."""

from __future__ import annotations

from treadle.core import glossary
from treadle.core.job import State


def test_every_state_and_every_word_for_a_pod_is_explained() -> None:
    words = glossary.words()
    assert {*State} <= words.keys()
    assert {"live", "quiet", "stopping", "lapsed", "lost"} <= words.keys()
    assert {"open", "paused", "cooling", "max_workers 0", "not served"} <= words.keys()


def test_a_label_stands_once_and_is_explained_in_a_line() -> None:
    labels = [label.lower() for group in glossary.LABELS.values() for label in group]
    assert len(labels) == len({*labels})
    for label, says in glossary.words().items():
        assert says[0].islower() or says[0].isdigit(), label
        assert not says.endswith(".") and len(says) <= 120 and "|" not in says, label
