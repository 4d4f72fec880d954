from __future__ import annotations

import stat

import pytest

from treadle.core.file_trust import Found, Rules, is_shared, why_not, why_not_parent

ME, ROOT, OTHER = 1000, 0, 1001
FILE, FOLDER, PIPE, LINK, SOCKET = stat.S_IFREG, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFLNK, stat.S_IFSOCK


@pytest.mark.parametrize(
    ("mode", "shared", "refused"),
    [
        (0o700, False, False),
        (0o755, False, False),
        (0o775, False, False),  # a home with umask 002
        (0o2775, False, False),  # a folder that a group shares
        (0o1777, True, False),  # /tmp
        (0o777, True, True),
        (0o702, True, True),
        (0o2777, True, True),
    ],
)
def test_a_folder_that_anybody_may_write_to_is_refused_unless_it_is_sticky(
    mode: int, shared: bool, refused: bool
) -> None:
    why = why_not_parent("/data", Found(FOLDER | mode, OTHER))
    assert is_shared(FOLDER | mode) == shared
    assert (why is not None) == refused
    if why is not None:
        assert "anybody may replace files in /data: chmod o-w /data" in why
        assert "mkdir -m 700 /data/treadle" in why


@pytest.mark.parametrize(
    ("found", "rules", "why"),
    [
        (Found(FILE | 0o600, ME), Rules(), None),
        (Found(FILE | 0o660, OTHER), Rules(), None),  # shared by a group
        (Found(FILE | 0o600, OTHER), Rules(), None),  # root in a container, on a volume of somebody's
        (Found(FILE | 0o600, ME), Rules(shared=True), None),
        (Found(FILE | 0o600, ROOT), Rules(shared=True), None),
        (Found(FILE | 0o600, OTHER), Rules(shared=True), "belongs to another user (uid 1001)"),
        (Found(LINK | 0o777, ME), Rules(), "symbolic link"),
        (Found(LINK | 0o777, ME), Rules(kind="folder"), "symbolic link"),
        (Found(FOLDER | 0o700, ME), Rules(), "is not a regular file"),
        (Found(PIPE | 0o600, ME), Rules(), "is not a regular file"),
        (Found(SOCKET | 0o600, ME), Rules(), "is not a regular file"),
        (Found(FILE | 0o600, ME), Rules(kind="pipe"), "is not a pipe"),
        (Found(FILE | 0o600, ME), Rules(kind="folder"), "is not a directory"),
        (Found(FILE | 0o602, ME), Rules(), "anybody may write to /x: chmod o-w /x"),
        (Found(FILE | 0o666, ME), Rules(private=False), None),
        (Found(FOLDER | 0o777, ME), Rules(kind="folder"), "anybody may write"),
        (Found(FOLDER | 0o1777, ME), Rules(kind="folder"), "anybody may write"),
        (Found(FILE | 0o600, ME, 2), Rules(), "hard link"),
        (Found(FILE | 0o600, ME, 2), Rules(one_name=False), None),
        (Found(FILE | 0o600, ME, 0), Rules(), None),  # removed just now
        (Found(FOLDER | 0o700, ME, 5), Rules(kind="folder"), None),  # as many as it has folders in it
        (Found(PIPE | 0o600, ME), Rules(kind="pipe"), None),
        (Found(PIPE | 0o600, ME, 2), Rules(kind="pipe"), "hard link"),
    ],
)
def test_what_may_be_used(found: Found, rules: Rules, why: str | None) -> None:
    said = why_not("/x", found, rules, ME)
    assert said is None if why is None else why in (said or "")
