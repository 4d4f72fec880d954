"""When the history of a storage began: asked by a pod that counts its first runs, and by whatever draws them."""

from __future__ import annotations

from ...core import young
from ...core.rollup import MINUTE
from ...ports import Storage


async def began(storage: Storage, now: float) -> float | None:
    """The oldest row of a minute, or of what has outlived minutes; None if nothing has ever run. Each question reads
    one row by its key; where history is long it is one question."""
    minutes = await storage.rollups(MINUTE, 0.0, limit=1)
    first = minutes[0].at if minutes else None
    if first is not None and not young.is_young(first, now):
        return first
    for resolution, until in young.older(now):
        if coarse := await storage.rollups(resolution, 0.0, until, limit=1):
            return coarse[0].at
    return first
