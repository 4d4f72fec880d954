"""The executors that an app's declarations need: one for all commands, one for all services, one for each pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..core.errors import ConfigError
from ..ports import Executor
from ..tasks.external import Outside
from ..tasks.task import OutsideTask, Registry

T = TypeVar("T")


def executors_of(registry: Registry, *, grace: float) -> dict[str, Executor]:
    """By name; none for a registry of plain functions. `grace` is what a cancelled run may take to end."""
    declared = [task.outside for task in registry.tasks.values() if isinstance(task, OutsideTask)]
    found: dict[str, Executor] = {}
    if any(each.executor == "command" for each in declared):
        found["command"] = _commands(declared, registry, grace)
    if any(each.executor == "http" for each in declared):
        found["http"] = _services(declared, registry)
    return found | _pools(declared, registry, grace)


def _commands(declared: list[Outside], registry: Registry, grace: float) -> Executor:
    from ..tasks.external.command import Command
    from .command import CommandExecutor

    commands = [each for each in declared if isinstance(each, Command)]
    return CommandExecutor(commands, _finder(registry, Command), grace=grace)


def _services(declared: list[Outside], registry: Registry) -> Executor:
    from ..tasks.external.http import Hook
    from .http import HttpExecutor

    hooks = [each for each in declared if isinstance(each, Hook)]
    return HttpExecutor(hooks, _finder(registry, Hook))


def _pools(declared: list[Outside], registry: Registry, grace: float) -> dict[str, Executor]:
    from ..tasks.external.pool import PoolSpec, PoolTask

    specs: dict[str, PoolSpec] = {}
    for each in declared:
        if isinstance(each, PoolTask) and specs.setdefault(each.executor, each.pool) is not each.pool:
            raise ConfigError(f"pool {each.pool.name} is declared twice: give one of them another name")
    if not specs:
        return {}
    from .pool import PoolExecutor

    find = _finder(registry, PoolTask)
    return {name: PoolExecutor(spec, find, grace=grace) for name, spec in specs.items()}


def _finder(registry: Registry, kind: type[T]) -> Callable[[str], T | None]:
    def find(task: str) -> T | None:
        known: Any = registry.find(task)
        outside = known.outside if isinstance(known, OutsideTask) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return outside if isinstance(outside, kind) else None

    return find
