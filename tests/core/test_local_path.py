"""Where a login leads to: a page of this dashboard, whatever was asked for."""

from __future__ import annotations

import pytest

from treadle.core.local_path import local


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/jobs",
        "/jobs?filter=state:failed queue:mail",
        "/jobs?filter=state%3Afailed+queue%3Amail&page=2",
        "/jobs?filter=error:\\d",
        "/jobs?next=//evil.example",
        "/queues/a..b",
        "/queues/...",
        "/queues/größe",
    ],
)
def test_a_page_of_ours_is_kept_whole(path: str) -> None:
    assert local(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "jobs",
        "https://evil.example",
        "javascript:alert(1)",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "/x\\..\\y",
        "/\t/evil.example",
        "/a\nb",
        "/../admin",
        "/jobs/..",
        "/./x",
        "/%2e%2E/admin",
        "/.%2e/admin?x=1",
        "/..#x",
    ],
)
def test_whatever_could_lead_elsewhere_is_the_first_page(path: str) -> None:
    assert local(path) == "/"
