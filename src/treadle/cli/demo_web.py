"""The dashboard on the demo's data: from its first second, and as long as somebody looks."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .output import Output

if TYPE_CHECKING:
    from ..context.context import Call, Handle
    from .demo_scene import Workers

HOST: Final = "127.0.0.1"
PAUSE: Final = 0.7
BY: Final = "demo"


@contextlib.contextmanager
def dashboard(out: Output, url: str, port: int | None) -> Generator[str]:
    """Served beside the scene, by a thread of its own. Yields where it is."""
    from .. import config
    from ..app import App
    from ..web.server import Beside, server
    from .web import dashboard as make
    from .web import listen, shown

    settings = config.load({"url": url, "env": "demo"})
    listening = listen(HOST, settings.web_port if port is None else port)
    at = f"http://{shown(HOST, listening.getsockname()[1])}"
    app = App(url)
    serving = Beside(server(make(app, settings, None), HOST, 0), sockets=[listening])
    serving.start()
    out.say(f"Open the dashboard, and watch the next twenty seconds there: {at}\n")
    try:
        yield at
    finally:
        serving.stop()
        serving.join(10)


def furnish() -> None:
    """What a shop has beside its jobs: a schedule, and a queue that somebody has paused. Neither makes a job while the
    scene plays: its books count every job."""
    asyncio.run(_furnish())


async def _furnish() -> None:
    from .demo_tasks import app, monthly

    in_half_a_day = datetime.now(UTC) + timedelta(hours=12)
    line = f"{in_half_a_day.minute} {in_half_a_day.hour} * * *"
    async with app:
        await app.schedules.add("nightly-report", line, monthly.name, {"customer": "all"}, by=BY)
        await app.queues.pause("archive", reason="the disk is being replaced", by=BY)


def keep_open(out: Output, at: str, folder: Path, *, keep: bool = False) -> None:
    """A worker process and a trickle of jobs, so that there is something to see, until Ctrl-C."""
    from .demo_scene import Workers

    def tell() -> None:
        out.say(f"\nThe dashboard stays open, with one worker and a few new jobs every second: {at}")
        out.say("Its Attention is about the story above: webhooks that were refused, a worker that was killed.")
        out.say(f"Ctrl-C ends it{'' if keep else ', and removes its database'}.")

    with Workers(folder, before=3) as workers:
        asyncio.run(_live(workers, tell))


async def _live(workers: Workers, tell: Callable[[], None]) -> None:
    from .demo_tasks import app, monthly, sync_stock

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    tell()  # not before it is so: from here on Ctrl-C is the end that was meant, and no interruption
    chance = random.Random()  # noqa: S311 - a demo
    workers.start()
    report: Handle[Any] | None = None
    async with app:
        await app.schedules.add("sync-stock", "every 15s", sync_stock.name, {"warehouse": "berlin"}, by=BY)
        while not ended.is_set():
            workers.check()
            if report is None or (await report.status()).state in ("succeeded", "failed", "cancelled"):
                report = await monthly.enqueue("the whole year", seconds=40.0)  # its progress is there to be watched
            await app.enqueue_many(_some(chance))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await ended.wait()


def _some(chance: random.Random) -> list[Call[Any]]:
    """A few jobs. Now and then a webhook is refused, so that it is tried again or fails, or a card has expired: seldom
    enough for a shop that does well."""
    from .demo_tasks import charge, deliver, newsletter, receipt, sms, thumbnail

    order = chance.randint(1, 100_000)
    calls = [
        newsletter.bind(order),
        receipt.bind(order),
        thumbnail.bind(f"{order}.jpg"),
        sms.bind(f"+49 30 {order:06}"),
        deliver.bind(order, chance.choices([0, 1, 3], [40, 4, 1])[0]),
        charge.bind(order, chance.choices(["valid", "expired"], [40, 1])[0]),
    ]
    return chance.choices(calls, [4, 4, 4, 1, 4, 2], k=chance.randint(1, 4))
