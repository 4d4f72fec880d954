"""The conformance suite: what every storage must do, said in code. It names no storage; one joins in five lines:

    from treadle.testing.conformance import Suite

    class TestMine(Suite):
        async def make(self, clock):
            return MyStorage(clock=clock)

`make` answers with a storage that is empty and not yet open and takes its time from `clock` alone; the suite opens
and closes it. The cases run under pytest with anyio's plugin. What may differ between storages is asked of their
`capabilities`; a case that a storage cannot have is skipped and says which capability it needs.
"""

from __future__ import annotations

import pytest

# Before the cases are imported: a failed assert should show its values.
pytest.register_assert_rewrite(__name__)

from .suite import Suite  # noqa: E402

__all__ = ["Suite"]
