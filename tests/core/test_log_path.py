"""A path in a log has no credential in it."""

from __future__ import annotations

import secrets

import pytest

from treadle.core import log_path

WORDS = {"api", "v1", "answers", "beat", "jobs"}
TOKEN = "q8Xz0yWJmM4y1m6a1q5kG2c4xQmUoT7bVn3pLr9sHdE"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (f"/api/v1/answers/{TOKEN}", "/api/v1/answers/*"),
        (f"/api/v1/answers/{TOKEN}/", "/api/v1/answers/*/"),
        (f"/api/v1//answers/{TOKEN}/beat/", "/api/v1//answers/*/beat/"),
        (f"/API/v1/Answers/{TOKEN}", "/*/v1/*/*"),
        ("/api/v1/answers/x\r\ny", "/api/v1/answers/*"),
        (f"/{TOKEN}", "/*"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_without_a_route_only_our_own_words_are_told(path: str, told: str) -> None:
    assert log_path.of_none(path, WORDS) == told


def test_what_looks_like_a_token_is_told_nowhere() -> None:
    for _ in range(200):
        token = secrets.token_urlsafe(32)
        if any(map(str.isdigit, token)):  # one in a thousand has none
            assert token not in log_path.of_route(f"/jobs/{token}/x-{token}")
    path = "/jobs/019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11/queues/a-rather-long-name-of-a-queue-in-the-north-of-europe-2"
    assert log_path.of_route(path) == path


def test_a_path_is_one_short_line() -> None:
    assert log_path.of_route("/queues/a\nb\x1b[31m") == "/queues/a\\nb\\x1b[31m"
    assert len(log_path.of_route("/" + "é" * 5000)) < 2000
