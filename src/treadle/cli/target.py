"""What a command is about: the App that declares the tasks, or only the storage where the jobs are.

Commands that look or operate need a URL and no App: nobody's code is imported to cancel a job. The URL is that of the
settings; if nobody set one but somebody named an App, it is the App's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar

from ..config import Config, masked
from ..core import names
from ..core.blocker import sentence
from ..core.errors import ConfigError, MissingExtra, StorageTimeout, StorageUnavailable
from .errors import Locked

if TYPE_CHECKING:
    from ..app import App
    from ..ports import Storage

PLACES: Final = ("app", "jobs", "tasks", "main")
_SQLITE: Final = "sqlite:///"
# Something at the margin that is called `app`: only then is a file worth importing.
_HAS_APP: Final = re.compile(r"^(?:app\s*[:=]|from\s.+\simport\s.*\bapp\b)", re.MULTILINE)

T = TypeVar("T")


def with_storage(config: Config, work: Callable[[App], Awaitable[T]], *, create: bool = False) -> T:
    """Run `work` on an open App that knows the storage and no tasks. A database that is not there is made only if
    `create`: whoever only looks would otherwise be shown an empty one, in the wrong folder."""
    from ..app import App

    url = url_of(config)
    if not create:
        must_exist(url)

    async def run() -> T:
        async with App(url) as app:
            return await work(app)

    return asyncio.run(naming_blockers(run(), lambda: App(url).storage))


def with_app(config: Config, work: Callable[[App], Awaitable[T]]) -> T:
    """The same on the App that the settings name, which knows its tasks."""
    app = load_app(config)
    must_exist(app.url)

    async def run() -> T:
        async with app:
            return await work(app)

    return asyncio.run(naming_blockers(run(), lambda: app.storage))


def with_any_schema(config: Config, work: Callable[[Storage], Awaitable[T]], *, create: bool = False) -> T:
    """Run `work` on the storage itself, which is not open: for what can be asked of a schema that is too old to be
    used, or not there yet."""
    from ..app import App

    url = url_of(config)
    if not create:
        must_exist(url)

    async def run() -> T:
        storage = App(url).storage
        try:
            return await work(storage)
        finally:
            await storage.close()

    return asyncio.run(naming_blockers(run(), lambda: App(url).storage))


async def naming_blockers(work: Awaitable[T], storage: Callable[[], Storage]) -> T:
    """The work's answer. If the storage does not answer in time because it is locked, the error names who locks it."""
    try:
        return await work
    except StorageTimeout as error:
        if said := sentence(await storage().blockers()):
            raise Locked(f"{said} ({error})") from error
        raise


def url_of(config: Config) -> str:
    if not config.is_set("url") and config.is_set("app"):
        return load_app(config).url
    return config.url


def must_exist(url: str) -> None:
    path = sqlite_path(url)
    if path is None:
        return
    remedy = "name the right one with --url or TREADLE_URL, or make it with `treadle db migrate`"
    if not path.exists():
        raise StorageUnavailable(f"no such database: {path} (from {masked(url)}); {remedy}")
    if _is_without_tables(path):
        raise StorageUnavailable(f"{path} has no Treadle tables (from {masked(url)}); {remedy}")


def creation(url: str) -> str:
    """What to say if a command opens this URL and so creates a SQLite file: in a wrong working directory that is a
    new, empty one, which no worker serves. Empty if the file is there, or cannot be made because its directory is not;
    to be asked before the storage is opened."""
    path = sqlite_path(url)
    if path is None or path.exists() or not path.absolute().parent.is_dir():
        return ""
    return f"new database {path.absolute()}: no file was there (TREADLE_URL or --url names another one)"


def _is_without_tables(path: Path) -> bool:
    """A database of somebody else's, or an empty one: to open it as ours would put our tables into it."""
    import sqlite3

    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("select 1 from sqlite_master where name = 'treadle_schema'").fetchone() is None
    except sqlite3.Error:
        return False  # whoever opens it says better what is wrong


def sqlite_path(url: str) -> Path | None:
    """The file behind a SQLite URL."""
    path = url.removeprefix(_SQLITE).partition("?")[0]
    return Path(path) if path and url.startswith(_SQLITE) and not path.startswith(":memory:") else None


def load_app(config: Config) -> App:
    """The App that the settings name, or the one that is found here."""
    if config.app is None:
        found = discover(config)
        if found is None:
            raise ConfigError(
                f"no App found: name it with -A module:app or TREADLE_APP, or call it `app` in "
                f"{', '.join(f'{place}.py' for place in PLACES)} in {Path.cwd()}"
            )
        return found
    _hand_on(config)
    module_name, _, attribute = config.app.partition(":")
    app = _at_home(_attribute(_module(module_name, config.app), attribute or "app"), config)
    app.origin = f"{module_name}:{attribute or 'app'}"
    return app


def discover(config: Config) -> App | None:
    """`app` in app.py, jobs.py, tasks.py or main.py of the working directory, the first that is one of ours."""
    from ..app import App

    _hand_on(config)

    for place in PLACES:
        path = Path(f"{place}.py")
        if path.is_file() and _HAS_APP.search(path.read_text("utf-8", "replace")):
            found = getattr(_module(place, place), "app", None)
            if isinstance(found, App):
                found.origin = f"{place}:app"
                return _at_home(found, config)
    return None


def _hand_on(config: Config) -> None:
    """An App reads the settings by itself while it is imported; of our flags it can only hear so."""
    if config.sources.get("url") == "--url":
        os.environ["TREADLE_URL"] = config.url


def _at_home(app: App, config: Config) -> App:
    if config.sources.get("url") == "--url" and app.url != config.url:
        raise ConfigError(f"the App says itself where its jobs are ({masked(app.url)}): leave --url out")
    return app


def _module(name: str, spec: str) -> ModuleType:
    _look_here()
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        likely = name.removesuffix(".py").replace("/", ".").strip(".")
        raise ConfigError(f"{spec!r} does not name an App; write it as module:attribute, for example {likely}:app")
    try:
        return importlib.import_module(name)
    except MissingExtra:  # its message is the remedy
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            near = names.suggest(name, _modules_here())
            remedy = f'did you mean "{near}"?' if near else "name it with -A module:app"
            raise ConfigError(f"no module {name} in {Path.cwd()} or on the path; {remedy}") from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _attribute(module: ModuleType, path: str) -> App:
    from ..app import App

    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            apps = [name for name, value in vars(module).items() if isinstance(value, App)]
            near = apps[0] if len(apps) == 1 else names.suggest(part, dir(found))
            remedy = f'did you mean "{module.__name__}:{near}"?' if near else "no App is there: write `app = App()`"
            raise ConfigError(f'{module.__name__} has no "{part}"; {remedy}')
        found = getattr(found, part)
    if not isinstance(found, App):
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        remedy = f'did you mean "{module.__name__}:{apps[0]}"?' if apps else "it must be a treadle.App"
        raise ConfigError(f"{module.__name__}:{path} is a {type(found).__name__}, not an App; {remedy}")
    return found


def _broken(name: str, error: Exception) -> ConfigError:
    frames = traceback.extract_tb(error.__traceback__)
    # The last frame that is somebody's file: the importing machinery itself has none worth naming.
    own = [frame for frame in frames if not frame.filename.startswith("<") and "importlib" not in frame.filename]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own and own[-1].filename != __file__ else ""
    said = str(error).splitlines()[0] if str(error) else ""
    return ConfigError(f"importing {name} failed: {type(error).__name__}: {said}{place}; --traceback shows the rest")


def _look_here() -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _modules_here() -> list[str]:
    here = Path.cwd()
    files = [path for pattern in ("*.py", "*/*.py") for path in here.glob(pattern)]
    return [".".join(path.relative_to(here).with_suffix("").parts).removesuffix(".__init__") for path in files]
