from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from .world import World, world_on


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db") as made:
        yield made
