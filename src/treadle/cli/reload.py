"""Noticing that code has changed: by the times of the files behind the modules that are loaded, twice a second.

No library watches for us: it is a few hundred `stat` calls, and works on every file system.
"""

from __future__ import annotations

import asyncio
import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

EVERY: Final = 0.5
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "site-packages"})


class Watch:
    """The files of the user's own code. `extra` are watched, too, whether they are there yet or not."""

    def __init__(self, extra: Iterable[Path] = ()) -> None:
        self._extra = tuple(extra)
        self._seen = self._look()

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

    def _look(self) -> dict[Path, float | None]:
        return {path: _changed_at(path) for path in (*own_files(), *self._extra)}


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


def _changed_at(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None
