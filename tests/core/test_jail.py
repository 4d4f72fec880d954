from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.jail import check_jail, is_within, ups, within

CLIMBING = ["..", "../x", "a/..", "a/../b", "/srv/../etc", "--file=../x", "a=..", "./..", "a//..//b"]
NOT_CLIMBING = ["", ".", "...", "a..b", "HEAD..main", "a/...", "..a", "see above..", "../x y".replace("/", "\\")]


@pytest.mark.parametrize("text", CLIMBING)
def test_a_path_that_goes_up(text: str) -> None:
    assert ups(text)


@pytest.mark.parametrize("text", NOT_CLIMBING)
def test_dots_that_go_nowhere(text: str) -> None:
    assert not ups(text)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.png", "/srv/media/a.png"),
        ("cats/1.png", "/srv/media/cats/1.png"),
        ("./cats//./1.png", "/srv/media/cats/1.png"),
        ("/srv/media/a.png", "/srv/media/a.png"),
        ("cats/", "/srv/media/cats"),
        ("...", "/srv/media/..."),
        ("cats/-rf", "/srv/media/cats/-rf"),
    ],
)
def test_a_file_in_the_jail(name: str, path: str) -> None:
    assert within("/srv/media", name) == path


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "names no file"),
        (".", "names no file"),
        ("./", "names no file"),
        ("/srv/media", "names no file"),
        ("/srv/media/", "names no file"),
        ("..", "must not hold"),
        ("../x", "must not hold"),
        ("a/../../x", "must not hold"),
        ("/srv/media/../x", "must not hold"),
        ("/etc/passwd", "not below /srv/media"),
        ("/srv/media2/x", "not below /srv/media"),
        ("//srv/media/x", "not below /srv/media"),
        ("/", "not below /srv/media"),
        ("-rf", "dash"),
        ("a\0b", "NUL"),
    ],
)
def test_a_file_elsewhere_is_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        within("/srv/media", name)


@given(st.text(st.sampled_from("./-ab\0srv"), max_size=20))
def test_no_name_leaves_the_jail(name: str) -> None:
    try:
        found = within("/srv", name)
    except ValueError:
        return
    assert posixpath.normpath(found) == found
    assert found.startswith("/srv/")


def test_a_jail_is_a_folder_by_its_plain_name() -> None:
    assert check_jail("/srv//media/./") == "/srv/media"
    for wrong in ("srv", "", "/", "//", "/./", "/srv/../etc", "/srv\0"):
        with pytest.raises(ValueError, match="absolute path"):
            check_jail(wrong)


def test_what_is_within_a_folder() -> None:
    assert is_within("/srv", "/srv")
    assert is_within("/srv", "/srv/a")
    assert is_within("/", "/a")
    assert not is_within("/srv", "/srv2")
    assert not is_within("/srv", "/")
