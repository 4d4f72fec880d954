"""Lock: what a storage answers with when somebody asks for a name."""

from __future__ import annotations

import pytest

from treadle.core.lock import Lock


def test_it_is_a_value_that_nobody_changes() -> None:
    lock = Lock(name="report", owner="ann", fence=3, left=10.0)
    assert lock == Lock(name="report", owner="ann", fence=3, left=10.0)
    assert lock != Lock(name="report", owner="ann", fence=4, left=10.0)
    with pytest.raises(AttributeError):
        lock.fence = 4  # type: ignore[misc]
