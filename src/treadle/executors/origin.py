"""Origin: where an app's code comes from, so that a child process can import the same.

An app is found again by `module:attribute`. Its tasks may be declared in other modules, which the child imports too, in
the order in which they were declared. The module that was started (`__main__`) is imported under the name that its
tasks have: its file's, or that after `python -m`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from msgspec import Struct

from ..core.errors import ConfigError
from ..tasks.task import Registry

is_importing = False  # this process is a child, and imports the app
_REMEDY = "put the App and its tasks into a module that can be imported"


class Origin(Struct, frozen=True, kw_only=True):
    app: str  # module:attribute
    modules: tuple[str, ...] = ()  # of its tasks
    main: tuple[str, str] | None = None  # the script that was started: its name as a module, and its file
    path: tuple[str, ...] = ()  # where modules are looked for


def origin_of(app: Registry, told: str | None = None) -> Origin:
    """Where the app is. ConfigError if it cannot be imported in another process. `told`: as somebody named it."""
    homes = list(dict.fromkeys(task.__module__ for task in app.tasks.values()))
    main = _main()
    place = told if told is not None else _find(app, homes)
    module, _, attribute = place.partition(":")
    attribute = attribute or "app"
    for name in (module, *homes):
        _check(name, main)
    renamed = [_renamed(name, main) for name in homes]
    uses_main = "__main__" in (module, *homes) and main is not None and main[1] is not None
    return Origin(
        app=f"{_renamed(module, main)}:{attribute}",
        modules=tuple(renamed),
        main=(main[0], main[1]) if uses_main and main is not None and main[1] is not None else None,
        path=tuple(path if path else os.getcwd() for path in sys.path),
    )


class Finder:
    """`origin_of` an app, looked for once, and again when more tasks were declared."""

    def __init__(self, app: Registry, told: str | None = None) -> None:
        self._app = app
        self._told = told
        self._tasks = -1
        self._found: Origin | ConfigError = ConfigError("not looked for")

    def __call__(self) -> Origin:
        if self._tasks != len(self._app.tasks):
            self._tasks = len(self._app.tasks)
            try:
                self._found = origin_of(self._app, self._told)
            except ConfigError as error:
                self._found = error
        if isinstance(self._found, ConfigError):
            raise self._found
        return self._found


def load(origin: Origin) -> Any:
    """The app, imported here."""
    global is_importing
    is_importing = True
    sys.path[:] = origin.path
    if origin.main is not None:
        _load_script(*origin.main)
    name, _, attribute = origin.app.partition(":")
    found: Any = importlib.import_module(name)
    for part in attribute.split("."):
        found = getattr(found, part)
    for module in origin.modules:
        importlib.import_module(module)
    return found


def _load_script(name: str, path: str) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _main() -> tuple[str, str | None] | None:
    """What `__main__` is called where it is imported, and its file if it was started as one."""
    main = sys.modules.get("__main__")
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return spec.name, None
    if path is None or path.startswith("<"):
        return None
    return os.path.splitext(os.path.basename(path))[0], os.path.abspath(path)


def _renamed(module: str, main: tuple[str, str | None] | None) -> str:
    return main[0] if module == "__main__" and main is not None else module


def _find(app: Registry, homes: Iterable[str]) -> str:
    """The module and attribute that hold the app: looked for where its tasks are, then everywhere."""
    for name in dict.fromkeys((*homes, *sys.modules)):
        module = sys.modules.get(name)
        if isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                if value is app:
                    return f"{name}:{attribute}"
    raise ConfigError(f"the App is no attribute of any module: {_REMEDY}")


def _check(name: str, main: tuple[str, str | None] | None) -> None:
    if name == "__main__":
        if main is None:
            raise ConfigError(f"what was typed at a prompt or comes from a pipe cannot be imported: {_REMEDY}")
        return
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__spec__", None) is None:
        raise ConfigError(f"{name} was not imported from a file: {_REMEDY}")
