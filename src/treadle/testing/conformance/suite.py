"""All cases together, and what a runner needs to run them."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator

import pytest

from ...ports import Storage
from ..clock import FakeClock
from .answers import AnswersAtOnce, Waiting, WaitingOperators, WaitsOver
from .bulk import Bulk
from .claim import Claim, Due, Lease
from .clocks import Time
from .cluster import Beat, Leadership, Pods
from .concurrency import Concurrency, Sharing
from .copying import Copying
from .deploys import Deploys, DeploysElsewhere
from .finish import Finish, FollowUps, Meta
from .history import Forgetting, Rollups, Timelines
from .insert import Insert
from .keeping import Keeping
from .kept import Debouncing, KeptBehindAWait, LookingAtKept, RacesOverAPlace
from .life import Life
from .limits import Limits, Locks, QueueRates
from .live import Aging, Catalogue, HeardElsewhere, LaneOrder, LiveSettings, LiveTimeout
from .moved import Moved
from .moving import Move, Priority
from .mutes import Mutes
from .neighbours import Neighbours
from .operations import Audit, DeadLetters, Operations, SeeingAll
from .operators import Cancel, Remove, Reschedule, Revive
from .order import Order
from .orders import DueTasks, Orders, Serving, Shares, Stats
from .queues import CoolDown, Counts, Pause, Settings
from .reads import Count, Filters, Find, Get, Nowhere
from .repeats import Repeats
from .reports import Logs, Reports
from .rescuing import Abandonment, Expiry, Loss, Rescue
from .resolving import Resolving
from .retention import Retention
from .schedules import Definitions, Fires
from .signals import PATIENCE, Wakes, patience
from .stale import Stale
from .throttling import Throttling
from .unique import Replacing, RevivingUnique, Uniqueness


class Suite(
    Life,
    Insert,
    Bulk,
    Repeats,
    Uniqueness,
    Replacing,
    RevivingUnique,
    Keeping,
    LookingAtKept,
    KeptBehindAWait,
    Debouncing,
    RacesOverAPlace,
    Claim,
    Due,
    Lease,
    Order,
    Finish,
    Meta,
    FollowUps,
    Stale,
    Neighbours,
    Cancel,
    Revive,
    Reschedule,
    Remove,
    Move,
    Moved,
    Priority,
    Operations,
    SeeingAll,
    Audit,
    DeadLetters,
    Mutes,
    Retention,
    Pods,
    Beat,
    Leadership,
    Stats,
    Serving,
    Orders,
    Shares,
    DueTasks,
    Abandonment,
    Rescue,
    Expiry,
    Loss,
    Resolving,
    Time,
    Pause,
    Settings,
    CoolDown,
    Throttling,
    LiveSettings,
    LiveTimeout,
    Aging,
    LaneOrder,
    Catalogue,
    Deploys,
    DeploysElsewhere,
    HeardElsewhere,
    Counts,
    Limits,
    QueueRates,
    Locks,
    Get,
    Nowhere,
    Find,
    Count,
    Filters,
    Rollups,
    Timelines,
    Forgetting,
    Reports,
    Logs,
    Wakes,
    Concurrency,
    Sharing,
    Copying,
    Definitions,
    Fires,
    Waiting,
    WaitsOver,
    WaitingOperators,
    AnswersAtOnce,
):
    """What every storage must do. Derive a test class from it and say how a storage is made."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    async def storage(self, clock: FakeClock) -> AsyncIterator[Storage]:
        storage = await self.make(clock)
        await storage.open()
        yield storage
        await storage.close()

    @classmethod
    def cases(cls) -> list[str]:
        """The names of all cases."""
        return [name for name in dir(cls) if name.startswith("test_")]

    async def run(self, case: str, *, wakes_within: float = PATIENCE) -> None:
        """Run one case without pytest's fixtures; its AssertionError, if it has one, is the caller's. A wake that takes
        longer counts as lost."""
        patience.set(wakes_within)
        clock = FakeClock()
        storage = await self.make(clock)
        await storage.open()
        try:
            method = getattr(self, case)
            given = {"storage": storage, "clock": clock}
            await method(**{name: given[name] for name in inspect.signature(method).parameters})
        except pytest.skip.Exception:
            pass
        finally:
            await storage.close()
