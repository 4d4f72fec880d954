"""A shop in the middle of its day: what the pages are tested and photographed on."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from treadle import App
from treadle.config import Timing
from treadle.core.histogram import Histogram
from treadle.core.reading import FLEET, Depth, Reading
from treadle.core.rollup import HOUR, MINUTE, Rollup
from treadle.ports import Storage

from . import shop

# In every text that somebody stores. If a page ever runs it, the title changes and the test sees it.
CANARY = """"><img src=x onerror="document.title='XSS'"><script>document.title='XSS'</script>'{{7*7}}"""

PACES = {
    ("mail", "shop.mail.welcome"): (38.0, 0.09, 0.002),
    ("mail", "shop.mail.receipt"): (22.0, 0.05, 0.0),
    ("billing", "shop.billing.charge"): (9.0, 0.65, 0.04),
    ("images", "shop.images.thumbnail"): (14.0, 0.31, 0.01),
    ("webhooks", "shop.webhooks.deliver"): (18.0, 0.22, 0.06),
    ("search", "shop.search.reindex"): (1.0, 4.2, 0.0),
}


@dataclass
class Scene:
    app: App
    ids: dict[str, str] = field(default_factory=dict)


def make(url: str | None = None, storage: Storage | None = None) -> App:
    app = App(url, storage=storage, name="shop")
    app.include(shop.registry)
    app.queue("mail", description="Letters to customers", owner="growth")
    app.queue("billing", rate="600/m", description="Money")
    app.limit("slack", "100/m", burst=20)
    app.limit("mail-provider", "50/s", burst=100)
    return app


async def fill(app: App, *, jobs: int = 60, minutes: int = 25 * 60) -> Scene:
    """All that does not need a worker."""
    scene = Scene(app)
    await write_history(app, minutes)
    await app.enqueue_many(shop.welcome.bind(n) for n in range(jobs))
    await app.enqueue_many(shop.receipt.bind(n) for n in range(jobs // 2))
    await app.enqueue_many(shop.charge.bind(n, 9.99 + n) for n in range(jobs // 2))
    await app.enqueue_many(shop.thumbnail.bind(f"photo-{n}.{'gif' if n % 5 == 0 else 'jpg'}") for n in range(jobs // 3))
    await app.enqueue_many(shop.deliver.bind(n, f"https://hooks.example.com/{n}") for n in range(jobs // 4))
    await app.enqueue_many(shop.reindex.bind() for _ in range(3))
    await app.enqueue(shop.nightly.using(reason="asked for by finance", tags=["finance"]).bind(day="2026-11-15"))
    for n in range(8):
        await app.enqueue(shop.welcome.using(delay=f"{20 + n * 7}m", tags=["campaign", "vip"]).bind(1000 + n))
    strange = shop.welcome.using(tags=["<b>bold"], reason=CANARY[:200], delay="1h")
    hostile = await app.enqueue(strange.bind(7, note=CANARY))
    scene.ids["hostile"] = hostile.id
    for n in range(4):
        await app.enqueue("legacy.export", {"table": "orders", "part": n}, queue="legacy")
    await app.schedules.add("nightly-report", "0 3 * * *", "shop.reports.nightly", tz="Europe/Berlin", by="ann")
    await app.schedules.add("reindex", "every 1h", "shop.search.reindex", by="ann")
    await app.schedules.add("newsletter", "30 8 * * MON", "shop.mail.welcome", {"user_id": 1}, by="ann")
    await app.schedules.pause("newsletter", reason="wrong numbers in the template", by="bob")
    await app.queues.pause("reports-archive", reason="disk is being replaced", by="ann")
    return scene


async def write_history(app: App, minutes: int = 25 * 60) -> None:
    """A day in minutes and a week in hours, as pods would have written them."""
    chance = random.Random(7)
    async with app:
        now = await app.storage.time()
        rows: list[Rollup] = []
        for (queue, task), (pace, seconds, bad) in PACES.items():
            for minute in range(1, minutes):
                at = now - now % MINUTE - minute * MINUTE
                rows.append(_row(chance, MINUTE, at, queue, task, pace, seconds, bad * (6 if 12 < minute < 22 else 1)))
            for hour in range(1, 170):
                at = now - now % HOUR - hour * HOUR
                slower = 1.6 if task.endswith("thumbnail") and hour <= 24 else 1.0  # since yesterday's deploy
                rows.append(_row(chance, HOUR, at, queue, task, pace * 60, seconds * slower, bad))
        for start in range(0, len(rows), 200):
            await app.storage.roll_up(rows[start : start + 200])
        depths = [_depths(MINUTE, now - now % MINUTE - n * MINUTE) for n in range(1, min(minutes, 1500))]
        await app.storage.roll_up(depths + [_depths(HOUR, now - now % HOUR - n * HOUR) for n in range(1, 170)])


def _depths(resolution: int, at: float) -> Reading:
    """How much lay in the queues: a wave over an hour, and a hill where billing stood still."""
    chance = random.Random(at)
    long = resolution * 60
    wave = 1 + math.sin(2 * math.pi * (at % long) / long)
    hill = max(0.0, 1 - abs(at % long / long - 0.4) / 0.25)
    found = {
        "mail": Depth(round(10 + 60 * wave + chance.gauss(0, 6)), round(9 + 12 * wave), round(chance.uniform(14, 20))),
        "billing": Depth(round(6 + 260 * hill + chance.random() * 4), 4, 4),
        "images": Depth(round(22 + chance.gauss(0, 3)), 0, 4),
        "webhooks": Depth(round(18 + 14 * wave), 60, 4),
        "search": Depth(3, 0, 1),
    }
    whole = Depth(*map(sum, zip(*found.values(), strict=True)))
    return Reading(resolution=resolution, at=at, pod=FLEET, depths={"": whole, **found})


def _row(
    chance: random.Random, resolution: int, at: float, queue: str, task: str, pace: float, seconds: float, bad: float
) -> Rollup:
    day = 1 + 0.55 * math.sin(2 * math.pi * (at % 86_400) / 86_400)
    runs = max(0, round(chance.gauss(pace * day, (pace * day) ** 0.5)))
    failed = sum(chance.random() < bad for _ in range(runs))
    wait, run = Histogram(), Histogram()
    for _ in range(min(runs, 60)):
        wait.add(chance.lognormvariate(math.log(0.02), 0.9))
        run.add(chance.lognormvariate(math.log(seconds), 0.5))
    outcomes = {"succeeded": runs - failed}
    if failed:
        outcomes["retried" if task.endswith("deliver") else "failed"] = failed
    return Rollup(resolution=resolution, at=at, queue=queue, task=task, outcomes=outcomes, wait=wait, run=run)


@asynccontextmanager
async def living(app: App, minutes: int = 25 * 60) -> AsyncGenerator[Scene]:
    """Workers at work, until what can end has ended; the report goes on running."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app)
        slots = {"mail": 10, "billing": 4, "images": 4, "reports": 2, "webhooks": 4, "search": 1}
        # The report never ends: it is given back as soon as the scene is over.
        timing = replace(Timing(), grace=0.1, cancel_grace=0.1)
        # In the middle of a deploy: one worker has the new code.
        old, new = "2026.11.2", "2026.11.3"
        await stack.enter_async_context(app.worker(queues=slots, label="web1-7f3a", timing=timing, worker_version=old))
        others = {"mail": 10, "images": 4}
        await stack.enter_async_context(app.worker(queues=others, label="web2-9c01", timing=timing, worker_version=new))
        scene = await fill(app, minutes=minutes)
        until = datetime.now(UTC) + timedelta(seconds=20)
        served = "queue:mail,billing,images,webhooks,search"
        while datetime.now(UTC) < until:
            counts = await app.jobs.count(f"{served} state:ready")
            running = await app.jobs.count(f"{served} state:running")
            if not sum(counts.values()) + sum(running.values()):
                break
            await asyncio.sleep(0.1)
        for name, which in {
            "failed": "state:failed task:shop.billing.charge",
            "running": "state:running",
            "retrying": "is:retrying",
            "ready": "state:ready",
            "succeeded": "state:succeeded",
            "scheduled": "state:scheduled tag:vip",
        }.items():
            page = await app.jobs.find(which, limit=1)
            if page.jobs:
                scene.ids[name] = page.jobs[0].id
        await app.queues.pause("webhooks", reason="hooks.example.com is down", by="ann")
        yield scene


async def act(app: App) -> None:
    """What operators have done today, and schedules that have fired: for pictures."""
    for _ in range(9):
        await app.schedules.fire("reindex")
    handle = await app.operations.start(
        "revive", "state:failed task:shop.images.thumbnail", by="bob", reason="the decoder was updated"
    )
    await app.operations.wait(handle.id, 20)
    handle = await app.operations.start("priority", "tag:vip state:scheduled", priority=50, by="ann")
    await app.operations.wait(handle.id, 20)
    await app.queues.set("images", max_workers=6, by="ann")
    await app.enqueue_many(shop.welcome.using(queue="bulk").bind(n) for n in range(120))
    async with app.lock("import", ttl="5m"):
        pass
