"""Errors that carry more than a message."""

from __future__ import annotations

import pytest

from treadle.core.errors import BulkIncomplete, MissingExtra


def test_a_missing_extra_says_how_it_is_installed() -> None:
    with pytest.raises(ImportError, match=r"the dashboard needs jinja2: pip install 'treadle\[web\]'"):
        raise MissingExtra("the dashboard", "jinja2", "web")


def test_an_incomplete_bulk_has_the_handles_that_are_in() -> None:
    error = BulkIncomplete("2 jobs are in", handles=["first", "second"])
    assert (str(error), error.handles) == ("2 jobs are in", ["first", "second"])
