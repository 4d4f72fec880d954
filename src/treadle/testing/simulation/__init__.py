"""Deterministic simulation: real pods, services and clients on virtual time, with one seed for all that goes wrong.

    python -m treadle.testing.simulation --seeds 1000        # a campaign
    python -m treadle.testing.simulation --one 4711          # one seed, told in full

`loop` is the event loop, `seam` the network between pods and storage, `world` who lives there and who torments them,
`campaign` runs many seeds, `ablations` switches safeguards off to see that it is noticed.
"""

from __future__ import annotations

from .campaign import Result, campaign
from .loop import Deadlock, Escape, Host, Livelock, SimLoop
from .mill import Mill
from .seam import Seam, Weather
from .world import Report, World, simulate

__all__ = [
    "Deadlock",
    "Escape",
    "Host",
    "Livelock",
    "Mill",
    "Report",
    "Result",
    "Seam",
    "SimLoop",
    "Weather",
    "World",
    "campaign",
    "simulate",
]
