"""What users hold on to does not change by a move of code."""

from __future__ import annotations

import json

from .surface import RECORDED, surface


def test_the_surface_is_the_recorded_one() -> None:
    """After a feature that adds to it: python -m tests.surface, and look at the difference."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    found = json.loads(json.dumps(surface()))
    for part, value in recorded.items():
        assert found[part] == value, part
    assert found.keys() == recorded.keys()
    assert all(recorded.values()), "a part of the surface that is empty guards nothing"
