"""The pytest plugin: one fixture, `jobs`. Nothing is imported until a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .kit import Jobs


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    """Every app's jobs in memory, on a virtual clock; see `treadle.testing.kit`."""
    from ..app import App
    from .kit import Jobs

    kit = Jobs()
    kit.use(*App.all())
    yield kit
    kit.give_back()
