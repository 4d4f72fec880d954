"""`treadle dev`: a worker and the dashboard in one process, which starts anew when the code changes."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..config import Config, masked
from ..core.errors import TreadleError
from . import target
from .command import LINE, Invocation, verb
from .errors import DONE

if TYPE_CHECKING:
    from ..app import App

GRACE: Final = 3.0  # somebody waits at the keyboard
AGAIN: Final = "--again"  # hidden: this is not the first start


@verb(
    "dev",
    "treadle dev shop.jobs:app",
    "treadle dev                              # the app in app.py, jobs.py, tasks.py or main.py",
    "treadle dev shop.jobs:app -q mail:5,default --port 9000",
)
@click.argument("where", required=False, metavar="[MODULE:APP]")
@click.option("-q", "--queues", metavar="LIST", help="What to serve. Default: every queue of the app's tasks.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Of the dashboard. Default 8181; 0 takes a free one.")
@click.option("--no-reload", is_flag=True, help="Do not start anew when the code changes.")
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
@click.option(AGAIN, is_flag=True, hidden=True)
def dev(
    call: Invocation,
    where: str | None,
    queues: str | None,
    port: int | None,
    no_reload: bool,
    again: bool,
    **flags: object,
) -> int:
    """Run a worker and the dashboard while you write code. Ctrl-C ends it. Not for production: see `treadle worker`."""
    from . import logs
    from .reload import EVERY, Watch, marks, sources, start_anew

    if where is not None:
        call.flags["app"] = where
    line: list[str] = list(click.get_current_context().meta[LINE])
    settings = [Path("treadle.toml"), Path("pyproject.toml")]

    def files() -> list[Path]:
        return [*sources(Path.cwd()), *settings]

    before = {} if no_reload else marks(files())
    config = call.config(web_port=port, **flags)
    logs.configure(config.log_level, config.log_format)
    # To Python, compiled code is that of a source which has its size and was written in the same second: soon after a
    # start, a word that was changed for another of its length would go unseen.
    sys.dont_write_bytecode = sys.dont_write_bytecode or not no_reload
    try:
        app = target.load_app(config)
    except (Exception, SystemExit) as error:
        if no_reload or not again:
            raise
        # Half-written code is what reloading is for: say what is wrong, and wait for the next save.
        call.out.warn(f"the app cannot be loaded: {type(error).__name__}: {error}; waiting for a change")
        while marks(files()) == before:  # a file that is new may be what was missing
            time.sleep(EVERY)
        return start_anew(line)
    if created := target.creation(app.url):
        call.out.say(created)
    found = asyncio.run(_run(call, config, app, queues, None if no_reload else Watch(settings, before), again))
    if found is None:
        return DONE
    path, port = found
    call.out.say(f"{path} has changed: starting anew")
    return start_anew(_line(line, port))


def _line(line: list[str], port: int) -> list[str]:
    """The same command, on the port that it had."""
    kept: list[str] = []
    words = iter(line)
    for word in words:
        if word == "--port":
            next(words, None)
        elif word != AGAIN and not word.startswith("--port="):
            kept.append(word)
    return [*kept, "--port", str(port), AGAIN]


async def _run(
    call: Invocation, config: Config, app: App, queues: str | None, watch: object, again: bool
) -> tuple[Path, int] | None:
    """Serve until a signal comes, or until the code changes: then the file that did, and the port."""
    import dataclasses

    from ..web.server import server
    from .reload import Watch
    from .web import dashboard, listen, shown

    timing = dataclasses.replace(app.timing, grace=min(GRACE, app.timing.grace))
    listening = listen("127.0.0.1", config.web_port)
    port: int = listening.getsockname()[1]
    made = server(dashboard(app, config, None), "127.0.0.1", port)
    changed: Path | None = None

    async def notice(watching: Watch) -> None:
        nonlocal changed
        changed = await watching.wait()
        made.should_exit = True

    try:
        async with app.worker(queues, timing=timing, log_jobs=True) as pod:
            if not again:
                call.out.line(f"http://{shown('127.0.0.1', port)}")
                call.out.say(f"{masked(app.url)}; {len(app.tasks)} tasks; Ctrl-C ends it")
            noticing = asyncio.create_task(notice(watch)) if isinstance(watch, Watch) else None
            try:
                await made.serve(sockets=[listening])
            finally:
                if noticing is not None:
                    noticing.cancel()
            del pod
    except TreadleError:
        listening.close()
        raise
    return None if changed is None else (changed, port)
