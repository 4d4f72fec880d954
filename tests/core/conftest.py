from __future__ import annotations

import pytest

# mutmut 3.8 asks for an attribute that pytest 9 no longer has.
if not hasattr(pytest.Item, "_nodeid"):
    pytest.Item._nodeid = property(lambda item: item.nodeid)  # type: ignore[attr-defined]
