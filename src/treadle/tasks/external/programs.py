"""Programs: what commands and worker pools have in common: an absolute program, its environment, its limits."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from ...core.duration import Duration, seconds
from ...core.size import Size, size

PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a program finds around it. Nothing of ours is there unless it is named."""

    env: dict[str, str] = {}
    inherit: tuple[str, ...] = ()  # variables of the worker's own that it is given, where they are set
    limits: dict[str, int] = {}  # by the names of `executors.launch`
    cwd: str | None = None
    user: str | None = None

    def environ(self, home: str, own: Mapping[str, str] | None = None) -> dict[str, str]:
        """Its whole environment."""
        own = os.environ if own is None else own
        passed = {name: own[name] for name in self.inherit if name in own}
        return {"PATH": PATH, "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home} | passed | self.env


def surroundings(
    *,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    cwd: str | Path | None = None,
    user: str | None = None,
    cpu: Duration | None = None,
    memory: Size | None = None,
    file_size: Size | None = None,
    processes: int | None = None,
    open_files: int | None = None,
) -> Surroundings:
    """Checked; ValueError says what is wrong."""
    if isinstance(inherit, str):
        raise ValueError('inherit must be a list of names, for example ["LANG"]')
    names = tuple(inherit)
    for name in (*names, *(env or {})):
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"{name!r} is not a name that an environment variable can have")
    for name, value in (env or {}).items():
        if not isinstance(cast("object", value), str) or "\0" in value:
            raise ValueError(f"the environment variable {name} must be text without NUL")
    if cwd is not None and not Path(cwd).is_absolute():
        raise ValueError(f"cwd must be an absolute path, not {str(cwd)!r}")
    limits: dict[str, int] = {}
    if cpu is not None:
        limits["cpu"] = max(1, round(seconds(cpu, "cpu")))
    if memory is not None:
        limits["memory"] = size(memory, "memory")
    if file_size is not None:
        limits["file"] = size(file_size, "file_size")
    for key, name, count in (("processes", "processes", processes), ("files", "open_files", open_files)):
        if count is not None:
            limits[key] = _count(name, count)
    return Surroundings(
        env=dict(env or {}),
        inherit=names,
        limits=limits,
        cwd=None if cwd is None else str(cwd),
        user=user,
    )


def check_absolute(program: object) -> str:
    if not isinstance(program, str) or not program.startswith("/") or "\0" in program:
        raise ValueError(f"its program must be an absolute path, for example /usr/bin/convert, not {program!r}")
    if "{" in program or "}" in program:
        raise ValueError("its program is chosen here, and never by a job: no slots in its path")
    return program


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number, 1 or more, not {value!r}")
    return value
