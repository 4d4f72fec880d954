"""Each page, and each part of one, says what time it is by the server: a browser's clock may be wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from treadle.web.pages import frame

from .world import world_on

pytestmark = pytest.mark.anyio


async def test_a_page_and_its_parts_tell_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world_on(tmp_path / "web.db", pages=True) as world:
        headers = {"X-Role": "admin"}
        # Of limits, because nothing on that page has an age: other parts change from one second to the next.
        monkeypatch.setattr(frame, "time", SimpleNamespace(time=lambda: 1_800_000_000.25))
        page = await world.http.get("/limits", headers=headers)
        assert ' data-time="1800000000250"' in page.text
        headers["HX-Request"] = "true"
        part = await world.http.get("/limits", headers=headers)
        assert part.headers["treadle-time"] == "1800000000250"
        monkeypatch.setattr(frame, "time", SimpleNamespace(time=lambda: 1_800_000_001.0))
        same = await world.http.get("/limits", headers={**headers, "If-None-Match": part.headers["etag"]})
        assert same.status_code == 304 and same.headers["treadle-time"] == "1800000001000"  # no reason to send it again
