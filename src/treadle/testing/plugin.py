"""The pytest plugin: one fixture, `jobs`. Nothing is imported until a test asks for it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import pytest

if TYPE_CHECKING:
    from ..app import App
    from .kit import Jobs

_seen: Final[WeakSet[App]] = WeakSet()
_stay: Final[WeakSet[App]] = WeakSet()  # were there in two tests


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """Every app's jobs in memory, on a virtual clock; see `treadle.testing.kit`."""
    from .kit import Jobs

    kit = Jobs()
    kit.use(*_apps())
    yield kit
    kit.give_back()


def _apps() -> list[App]:
    """Those that somebody still has. An app of an earlier test is gone only when the collector has looked: until then
    its schedules would fire in this test, by chance."""
    from ..app import App

    if any(app not in _stay for app in App.all()):
        gc.collect()
        _stay.update(app for app in App.all() if app in _seen)
        _seen.update(App.all())
    return App.all()
