"""Noticing that code has changed: by the times of the files behind the modules that are loaded, twice a second.

What counts is whether a file is as it was *before* the code was loaded. Whoever looked only afterwards would miss what
is saved while it loads, and wait for a change that has come already.

No library watches for us: it is a few hundred `stat` calls, and works on every file system.
"""

from __future__ import annotations

import asyncio
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NoReturn

EVERY: Final = 0.5
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "site-packages"})

Mark = tuple[int, int] | None
"""By which it is told that a file is another one: when it was written, and its size. None: it is not there."""


def marks(files: Iterable[Path]) -> dict[Path, Mark]:
    return {path: _mark(path) for path in files}


class Watch:
    """The files of the user's own code. `extra` are watched, too, whether they are there yet or not. `before` is how
    files were before the code was loaded."""

    def __init__(self, extra: Iterable[Path] = (), before: Mapping[Path, Mark] | None = None) -> None:
        self._extra = tuple(extra)
        now = self._look()
        self._seen = now if before is None else {path: before.get(path, mark) for path, mark in now.items()}

    def changed(self) -> Path | None:
        """A file that is newer, or gone, since the last look; None. Files that were loaded meanwhile are added."""
        now = self._look()
        before, self._seen = self._seen, now
        for path, at in now.items():
            if path in before and before[path] != at:
                return path
        return next((path for path in before if path not in now), None)

    async def wait(self) -> Path:
        while (path := self.changed()) is None:  # noqa: ASYNC110 - a file system has no event to wait for
            await asyncio.sleep(EVERY)
        return path

    def _look(self) -> dict[Path, Mark]:
        return marks((*own_files(), *self._extra))


def own_files() -> set[Path]:
    """The files behind loaded modules, without those of Python and of installed packages."""
    foreign = tuple({*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_paths()["stdlib"], _own()})
    found: set[Path] = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.endswith(".py") and not file.startswith(foreign):
            found.add(Path(file))
    return found


def sources(folder: Path, most: int = 5000) -> list[Path]:
    """Python files below a folder, for when nothing could be loaded."""
    found: list[Path] = []
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _SKIPPED]
        found += [Path(root, name) for name in files if name.endswith(".py")]
        if len(found) > most:
            break
    return found[:most]


def start_anew(argv: list[str]) -> NoReturn:
    """The same command in the same process, with nothing left of what was loaded."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", __package__ or "", *argv])  # noqa: S606 - ourselves


def _own() -> str:
    return str(Path(__file__).parent.parent)


def _mark(path: Path) -> Mark:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
