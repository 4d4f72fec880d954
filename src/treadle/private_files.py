"""Opens and makes files that nobody else may have prepared: locks, pipes, tokens. What is refused, and why, is decided
by `core.file_trust`; here the system is asked.

A file is judged after it was opened, by its descriptor: what was looked at is what is used. `O_NOFOLLOW` keeps the last
part of a path from being a link; the parts before it are the folder's own, which is checked by whoever uses it.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from .core.file_trust import Found, Rules, is_shared, why_not, why_not_parent

PRIVATE: Final = 0o600
_TRIES: Final = 100
_OURS: Final = Rules()
_ORDINARY: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # an open must not wait, whatever is there


class Untrusted(OSError):
    """Somebody else may have put it there, or may replace it. Its text names the file and a remedy."""

    def __init__(self, why: str, path: str) -> None:
        super().__init__(errno.EPERM, why, path)

    def __str__(self) -> str:
        return str(self.strerror)


def check_parent(folder: str) -> bool:
    """Whether anybody may make files in a folder. Untrusted if anybody may also replace ours."""
    found = os.stat(folder)
    if why := why_not_parent(folder, _found(found)):
        raise Untrusted(why, folder)
    return is_shared(found.st_mode)


def check(path: str, rules: Rules = _OURS) -> None:
    """Untrusted, or FileNotFoundError, unless what is there may be used."""
    _judge(path, os.lstat(path), rules)


def check_if_there(path: str, rules: Rules = _OURS) -> None:
    try:
        check(path, rules)
    except FileNotFoundError:
        pass


def open_there(path: str, flags: int, rules: Rules = _OURS) -> int:
    """A file that must be there: its descriptor, judged."""
    try:
        descriptor = os.open(path, flags | _ORDINARY)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):  # a link, as Linux and macOS say it, and as FreeBSD does
            check(path, rules)
        raise
    try:
        _judge(path, os.fstat(descriptor), rules)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_or_make(path: str, rules: Rules = _OURS) -> int:
    """A file to read and write: made for its owner alone, or the one that is there, judged."""
    for _ in range(_TRIES):
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _ORDINARY, PRIVATE)
        except FileExistsError:
            pass
        try:
            return open_there(path, os.O_RDWR, rules)
        except FileNotFoundError:
            pass  # it was removed just now
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def make(path: str, flags: int = os.O_WRONLY) -> int:
    """A new file, for its owner alone. FileExistsError if anything has that name, a dangling link too."""
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE)


def _judge(path: str, found: os.stat_result, rules: Rules) -> None:
    if why := why_not(path, _found(found), rules, os.geteuid()):
        raise Untrusted(why, path)


def _found(found: os.stat_result) -> Found:
    return Found(found.st_mode, found.st_uid, found.st_nlink)
