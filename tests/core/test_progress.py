"""What a run may say of itself, and how it is read."""

from __future__ import annotations

import math
from typing import Any

import pytest

from treadle.core import progress
from treadle.core.errors import PayloadTooLarge
from treadle.core.outcome import Release
from treadle.core.progress import Progress, Reported, progress_of
from treadle.core.text import cut
from treadle.core.view import progress_view


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ((0.4, "page 4 of 10"), Progress(done=0.4, total=1.0, note="page 4 of 10")),
        ((0.4,), Progress(done=0.4, total=1.0)),
        ((1.0,), Progress(done=1.0, total=1.0)),
        ((4,), Progress(done=4.0)),
        ((1,), Progress(done=1.0)),
        ((4.5,), Progress(done=4.5)),
        ((0.5, 10), Progress(done=0.5, total=10.0)),
        ((4, 10, "pages"), Progress(done=4.0, total=10.0, note="pages")),
        ((4, None, "pages"), Progress(done=4.0, note="pages")),
        ((4, 10, "", {"b": [1], "a": None}), Progress(done=4.0, total=10.0, data='{"a":null,"b":[1]}')),
    ],
)
def test_progress_is_a_share_or_a_count(given: tuple[Any, ...], read: Progress) -> None:
    assert progress_of(*given) == read


@pytest.mark.parametrize("given", [(math.nan,), (math.inf,), (-1,), (1, math.nan), (1, -5)])
def test_what_is_no_number_of_things_is_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match=r"progress: (done|total) must be a number from 0 on"):
        progress_of(*given)


def test_a_note_is_cut_and_data_that_is_too_large_is_refused() -> None:
    assert len(progress_of(1, 2, "ü" * 10_000).note.encode()) <= progress.LONGEST_NOTE
    assert progress_of(1, 2, "ok\x00").note == "ok\\x00"
    with pytest.raises(PayloadTooLarge):
        progress_of(1, 2, "", "x" * 20_000)
    with pytest.raises(PayloadTooLarge):
        progress.checkpoint_of("x" * 70_000)
    assert progress.checkpoint_of({"page": 3}) == '{"page":3}'


def test_text_is_cut_at_bytes_and_not_inside_a_letter() -> None:
    assert cut("short", 10) == "short"
    assert cut("ü" * 5, 10) == "ü" * 5
    assert cut("ü" * 6, 10) == "üüü…"
    assert cut("x" * 11, 10) == "xxxxxxx…"
    assert cut("\ud800", 10) == "\\ud800"


def test_shares_are_between_nothing_and_all() -> None:
    assert progress.share(Progress(done=4.0, total=10.0)) == 0.4
    assert progress.share(Progress(done=11.0, total=10.0)) == 1.0
    assert progress.share(Progress(done=4.0)) is None
    assert progress.share(Progress(done=0.0, total=0.0)) is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (Progress(done=0.4, total=1.0, note="page 4"), "40 %  page 4"),
        (Progress(done=4.0, total=1.0), "100 %"),
        (Progress(done=4000.0, total=10_000.0), "4,000/10,000"),
        (Progress(done=2.5, note="GB"), "2.5  GB"),
    ],
)
def test_progress_in_words(said: Progress, words: str) -> None:
    assert progress.words(said) == words


def test_a_pod_writes_once_a_second() -> None:
    assert progress.wait_for(None, 100.0) == 0.0
    assert progress.wait_for(99.75, 100.0) == 0.75
    assert progress.wait_for(90.0, 100.0) == 0.0


def test_a_view_shows_damaged_data_rather_than_nothing() -> None:
    said = Reported(id="a", attempt=2, at=0.0, progress=Progress(done=1.0, total=4.0, note="n", data='{"a":1}'))
    view = progress_view(said)
    assert (view.done, view.total, view.share, view.note, view.data, view.attempt) == (1.0, 4.0, 0.25, "n", {"a": 1}, 2)
    assert view.at.isoformat() == "1970-01-01T00:00:00+00:00"
    broken = Reported(id="a", attempt=2, at=0.0, progress=Progress(data="{"))
    assert progress_view(broken).data == {"undecodable": "{"}
    assert progress.by_id([said]) == {"a": said}


def test_a_run_that_is_given_back_says_why() -> None:
    assert str(Release()) == "given back: the pod stops"
