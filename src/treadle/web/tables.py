"""All routes: those of every file in `web.api` and `web.pages` that has a table called `routes`."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator

from .routing import Route, Routes


def api_routes() -> list[Route]:
    return list(_routes("treadle.web.api"))


def page_routes() -> list[Route]:
    return list(_routes("treadle.web.pages"))


def _routes(package: str) -> Iterator[Route]:
    """Those of every module of the package that has `routes`."""
    if importlib.util.find_spec(package) is None:
        return
    parent = importlib.import_module(package)
    for found in sorted(pkgutil.iter_modules(parent.__path__), key=lambda each: each.name):
        routes = getattr(importlib.import_module(f"{package}.{found.name}"), "routes", ())
        if isinstance(routes, Routes):
            yield from routes
