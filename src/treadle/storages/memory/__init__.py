"""The memory storage: the reference, for tests and for trying things out."""

from .storage import MemoryStorage

__all__ = ["MemoryStorage"]
