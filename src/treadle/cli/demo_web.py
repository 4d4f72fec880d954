"""The dashboard on the demo's data: from its first second, and as long as somebody looks."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from .output import Output

if TYPE_CHECKING:
    from ..app import App

HOST: Final = "127.0.0.1"
PAUSE: Final = 0.7


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
    out.say(f"the dashboard: {at}\n")
    try:
        yield at
    finally:
        serving.stop()
        serving.join(10)


def keep_open(out: Output, app: App, at: str) -> None:
    """A worker and a trickle of jobs, so that there is something to see, until Ctrl-C."""
    out.say(f"\nThe dashboard stays open, with a worker and a few new jobs: {at}\nCtrl-C ends it.")
    asyncio.run(_live(app))


async def _live(app: App) -> None:
    from .demo_tasks import charge, deliver, newsletter, thumbnail

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, ended.set)
    chance = random.Random()  # noqa: S311 - a demo
    async with app, app.worker():
        while not ended.is_set():
            order = chance.randint(1, 100_000)
            calls = [
                newsletter.bind(order),
                deliver.bind(order, chance.choice([0, 0, 0, 1, 3])),
                thumbnail.bind(f"{order}.jpg"),
                charge.bind(order, chance.choice(["valid", "valid", "valid", "expired"])),
            ]
            await app.enqueue_many(chance.choices(calls, k=chance.randint(1, 4)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await ended.wait()
