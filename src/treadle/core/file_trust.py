"""Which files and folders may be used: judged by what `lstat` or `fstat` says of them, before anything is written.

Whoever may make files in a folder may put there, under a name that Treadle is about to open, a symbolic link or a
second name (a hard link) of somebody else's file; what Treadle writes would then go there. The rules, in the order in
which they are asked:

- A folder that *anybody* may write to is refused. With the sticky bit, as /tmp has it, others can make files in it and
  not rename or remove ours: then it passes, and what is found there must be ours, or root's.
- A symbolic link is never followed, and what is found must be of the kind that is meant.
- A file of our own that has a second name, or that anybody may write to, is refused.

Elsewhere the owner is not asked. In a folder that not everybody may write to, whoever could have made the file was
given that right: containers run as root on volumes of another user, and two users may share a database by a group. What
such a neighbour can still do is deny the service, or write jobs, which the database itself lets him do anyway.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct

Kind = Literal["file", "folder", "pipe"]
ROOT: Final = 0
_KINDS: Final[dict[Kind, tuple[Callable[[int], bool], str]]] = {
    "file": (stat.S_ISREG, "a regular file"),
    "folder": (stat.S_ISDIR, "a directory"),
    "pipe": (stat.S_ISFIFO, "a pipe"),
}


class Found(Struct, frozen=True):
    """What the system says of a file or folder."""

    mode: int
    uid: int
    links: int = 1


class Rules(Struct, frozen=True, kw_only=True):
    """What is asked of one file. `shared`: anybody may make files beside it, though not replace ours."""

    kind: Kind = "file"
    shared: bool = False
    one_name: bool = True
    private: bool = True  # anybody's right to write to it is a mistake; where its mode is the user's choice, it is not


def is_shared(mode: int) -> bool:
    """Whether anybody may make files in a folder."""
    return bool(mode & stat.S_IWOTH)


def why_not_parent(path: str, found: Found) -> str | None:
    """Why no file may be used that lies in this folder; None: it may."""
    if is_shared(found.mode) and not found.mode & stat.S_ISVTX:
        return (
            f"anybody may replace files in {path}: chmod o-w {path}, or use a directory of your own in it "
            f"(mkdir -m 700 {path.rstrip('/')}/treadle)"
        )
    return None


def why_not(path: str, found: Found, rules: Rules, user: int) -> str | None:
    """Why a file or folder may not be used by this user; None: it may."""
    fits, name = _KINDS[rules.kind]
    if stat.S_ISLNK(found.mode):
        return f"{path} is a symbolic link, which is not followed there: remove it"
    if not fits(found.mode):
        return f"{path} is not {name}"
    if rules.shared and found.uid not in (user, ROOT):
        return f"{path} belongs to another user (uid {found.uid}), and anybody may make files there: use another place"
    if rules.private and found.mode & stat.S_IWOTH:
        return f"anybody may write to {path}: chmod o-w {path}"
    if rules.one_name and rules.kind != "folder" and found.links > 1:  # none: it was removed just now
        return f"{path} is also another file's name (a hard link): remove it"
    return None
