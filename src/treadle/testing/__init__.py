"""For tests: the type of the `jobs` fixture, `from treadle.testing import Jobs`. Nothing is loaded until it is asked
for, because pytest imports this package for every test suite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kit import Jobs, UnexpectedFailure

__all__ = ["Jobs", "UnexpectedFailure"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import kit

    return getattr(kit, name)
