"""Pool: long-lived workers in any language, which speak JSON lines (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict

from ...core import names
from ...core.duration import Duration, seconds
from ...core.errors import ConfigError
from ...core.size import Size
from . import Stub, check_types
from .programs import Surroundings, check_absolute, surroundings

MOST: Final = 1024
DEFAULT_START: Final = 10.0


class PoolOptions(TypedDict, total=False):
    """What a pool may say besides its program."""

    size: int
    heartbeat: Duration | None  # how long a worker may be silent while it runs a job; None: until the job's timeout
    start: Duration  # how long it may take until it is ready
    recycle: int | None  # a new worker after so many jobs
    cwd: str | Path | None
    env: Mapping[str, str]
    inherit: Iterable[str]
    user: str | None
    cpu: Duration | None
    memory: Size | None
    file_size: Size | None
    processes: int | None
    open_files: int | None


class PoolSpec:
    """A declared pool."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        size: int = 1,
        heartbeat: Duration | None = None,
        start: Duration = DEFAULT_START,
        recycle: int | None = None,
        **around: Any,
    ) -> None:
        try:
            self.name = names.check_name("pool", name)
            if isinstance(argv, str) or not argv:
                raise ValueError('it needs a program and its arguments, for example ["/usr/bin/node", "worker.js"]')
            check_absolute(argv[0])
            for each in argv:
                if not isinstance(each, str) or "\0" in each:  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise ValueError(f"an argument must be text without NUL, not {each!r}")
            self.argv = tuple(argv)
            self.size = _count("size", size)
            self.heartbeat = None if heartbeat is None else _positive("heartbeat", heartbeat)
            self.start = _positive("start", start)
            self.recycle = None if recycle is None else _count("recycle", recycle, 10**9)
            self.around: Surroundings = surroundings(**around)
        except ValueError as error:
            raise ConfigError(f"pool {name}: {error}") from None

    @property
    def executor(self) -> str:
        return f"pool:{self.name}"


class PoolTask:
    """A task that a pool's workers know by its name."""

    def __init__(self, function: Callable[..., Any], task: str, pool: PoolSpec) -> None:
        self.task = task
        self.pool = pool
        self.stub = Stub(function, task)

    @property
    def executor(self) -> str:
        return self.pool.executor

    def check(self, arguments: Mapping[str, Any]) -> None:
        check_types(self.stub, arguments)


def _count(name: str, value: Any, most: int = MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{name} must be a whole number from 1 to {most}, not {value!r}")
    return value


def _positive(name: str, value: Duration) -> float:
    found = seconds(value, name)
    if found <= 0:
        raise ValueError(f"{name} must be longer than nothing")
    return found
