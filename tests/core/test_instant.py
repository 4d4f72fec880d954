from __future__ import annotations

from datetime import UTC, datetime

import pytest

from treadle.core.instant import instant


@pytest.mark.parametrize("text", ["2026-11-15T09:00Z", "2026-11-15T10:00:00+01:00", "2026-11-15 09:00:00.000+00:00"])
def test_a_moment_has_its_zone(text: str) -> None:
    assert instant(text) == datetime(2026, 11, 15, 9, tzinfo=UTC)


@pytest.mark.parametrize(("text", "says"), [("soon", "not a moment"), ("2026-11-15T09:00", "no zone")])
def test_anything_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        instant(text)
