"""What looks like a secret in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core import redact


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("password=hunter2, host=db", "password=***, host=db"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("postgresql://ann:hunter2@db/x", "postgresql://ann:***@db/x"),
        ("http://localhost:8080/x", "http://localhost:8080/x"),
        ("nothing here", "nothing here"),
    ],
)
def test_secrets_are_masked(given_text: str, shown: str) -> None:
    assert redact.text(given_text) == shown


PARTS = st.sampled_from(
    ["password", "api_key", "token", "=", ": ", ":", "'", '"', "bearer ", "hunter2", "https://", "ann", "@", "/", " ",
     "x", ",", "***"]
)  # fmt: skip


@given(st.lists(PARTS, max_size=9).map("".join), st.integers(0, 60))
def test_what_reaches_behind_a_mask_is_known(text: str, length: int) -> None:
    """A beginning that tells nothing of the secret is one that could be read from the masked text, too."""
    begun = text[:length]
    if not redact.reaches_in(begun, is_prefix=True):
        assert redact.text(text).startswith(begun), (text, begun)
    if not redact.reaches_in(text, is_prefix=False):
        assert redact.text(text) == text


def test_a_port_is_a_password_until_its_slash() -> None:
    assert redact.reaches_in("http://localhost:80", is_prefix=True)
    assert not redact.reaches_in("http://localhost:80", is_prefix=False)
    assert not redact.reaches_in("http://localhost:8080/", is_prefix=True)
