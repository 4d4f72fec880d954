"""Jails: a job names a file, and the command that opens it must stay within one folder.

Judged as text, before any file is looked at, so that a wrong name is refused where the job is enqueued. What the text
cannot tell, a symbolic link inside the folder that leads out of it, the worker asks the file system right before it
starts the program (`executors.command`).
"""

from __future__ import annotations

import re
from typing import Final

_PARTED: Final = re.compile(r"[/=]")


def ups(text: str) -> int:
    """How often a text, read as a path or as `--option=path`, goes up by `..`.

    >>> ups("a/../../b"), ups("--file=.."), ups("HEAD..main"), ups("and so on...")
    (2, 1, 0, 0)
    """
    return _PARTED.split(text).count("..")


def check_jail(folder: str) -> str:
    """The folder, in its plain form. ValueError unless it is absolute, and not the whole file system."""
    parts = folder.split("/")
    plain = "/" + "/".join(part for part in parts if part not in ("", "."))
    if not folder.startswith("/") or "\0" in folder or ".." in parts or plain == "/":
        raise ValueError(f"a folder that jobs name files in must be an absolute path without .., not {folder!r}")
    return plain


def within(jail: str, name: str) -> str:
    """The absolute path of what a job named: relative to its jail, or absolute and below it. ValueError says why not.

    >>> within("/srv/media", "cats/1.png"), within("/srv/media", "/srv/media/cats/1.png")
    ('/srv/media/cats/1.png', '/srv/media/cats/1.png')
    """
    if "\0" in name:
        raise ValueError("NUL cannot be in the name of a file")
    if name.startswith("-"):
        raise ValueError("the name of a file must not begin with a dash")
    parts = name.split("/")
    if ".." in parts:
        raise ValueError("the name of a file must not hold `..`")
    if name.startswith("/"):
        above = jail.split("/")
        if parts[: len(above)] != above:
            raise ValueError(f"it is not below {jail}")
        parts = parts[len(above) :]
    below = [part for part in parts if part not in ("", ".")]
    if not below:
        raise ValueError(f"it names no file below {jail}")
    return "/".join([jail, *below])


def is_within(jail: str, path: str) -> bool:
    """Whether a path without links is that of a folder without links, or of something below it."""
    return path == jail or path.startswith(jail.rstrip("/") + "/")
