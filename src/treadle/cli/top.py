"""`treadle top`: queues, runs, failures and pods, live in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from . import shared
from .command import Invocation, verb
from .params import DURATION
from .target import url_of, with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..config import Config
    from .top_screen import Act, Snapshot

MOST_ROWS: Final = 200
_ESCAPES: Final[Mapping[bytes, str]] = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left", b"\x1b[Z": "backtab",
}  # fmt: skip


@verb("top", "treadle top", "treadle top --every 5s", "treadle top --once --json | jq .queues")
@click.option("--every", type=DURATION, default="2s", show_default=True, help="How often to look.")
@click.option("--once", is_flag=True, help="Print one frame, and exit.")
def top(call: Invocation, every: float, once: bool) -> None:
    """Watch queues, running jobs, failures and pods; keys pause, cancel and revive. `?` shows them."""
    from ..config import masked
    from .top_screen import Screen

    config = call.config()
    if every < 0.2:
        raise click.UsageError("--every must be 200ms or more")
    if once or call.out.as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        seen = with_storage(config, lambda app: look(app, config))
        if call.out.as_json:
            call.out.data(_as_json(seen))
            return
        from .top_view import once as print_once

        print_once(Screen(), seen)
        return
    call.out.say(f"watching {masked(url_of(config))}")
    with_storage(config, lambda app: _live(app, config, every))


async def look(app: App, config: Config) -> Snapshot:
    """All that is shown, read at about one moment."""
    from ..config import masked
    from ..core import drain
    from .top_screen import Snapshot

    queues, pods, running, failures, warnings, pairs = await asyncio.gather(
        app.queues.list(),
        app.pods.list(),
        app.jobs.find("state:running", limit=MOST_ROWS),
        app.jobs.failures(limit=MOST_ROWS),
        app.warnings(),
        app.history.tasks(since="5m", step="1m", waiting=False),
    )
    now = datetime.now(UTC)
    since = drain.began(pairs, [pod.started_at for pod in pods])
    return Snapshot(
        at=now,
        place=masked(url_of(config)),
        env=config.env,
        queues=queues,
        pods=pods,
        running=running.jobs,
        failures=[group for group in failures.groups if not group.muted],
        warnings=warnings,
        per_minute=drain.per_minute(pairs, now, since, of=("succeeded",)),
    )


async def _live(app: App, config: Config, every: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from .top_screen import Screen, press, settled
    from .top_view import drawn

    console = Console(highlight=False)
    keys: asyncio.Queue[str] = asyncio.Queue()
    seen, screen = await look(app, config), Screen()
    due = asyncio.get_running_loop().time() + every
    with _keys(keys.put_nowait), Live(console=console, screen=True, auto_refresh=False) as live:
        while not screen.over:
            live.update(drawn(screen, seen, console.height), refresh=True)
            wait = max(0.0, due - asyncio.get_running_loop().time())
            try:
                async with asyncio.timeout(wait):
                    key = await keys.get()
            except TimeoutError:
                due = asyncio.get_running_loop().time() + every
                if not screen.held:
                    seen = await _again(app, config, seen)
                    screen = settled(screen, seen)
                continue
            screen, act = press(screen, key, seen)
            if act is not None:
                screen = replace(screen, said=await _do(app, act))
                seen = await _again(app, config, seen)
                screen = settled(screen, seen)


async def _again(app: App, config: Config, before: Snapshot) -> Snapshot:
    """A new look; while the storage is away the old one stays, and says so."""
    from ..core.errors import TreadleError

    try:
        return await look(app, config)
    except TreadleError as error:
        return replace(before, trouble=str(error))


async def _do(app: App, act: Act) -> str:
    """Carry out what an operator wants, and say what became of it."""
    from ..core.errors import TreadleError

    by = shared.operator()
    try:
        match act.name:
            case "pause":
                await app.queues.pause(act.target, by=by)
                return f"{act.target} is paused"
            case "resume":
                await app.queues.resume(act.target, by=by)
                return f"{act.target} goes on"
            case "cancel":
                return f"{act.target}: {await app.jobs.cancel(act.target, by=by)}"
            case "quiet":
                return f"{(await app.pods.quiet(act.target, by=by)).label} is asked to be quiet"
            case "serve":
                return f"{(await app.pods.serve(act.target, by=by)).label} is asked to serve"
            case "revive":
                operation = await app.operations.start("revive", act.target, by=by)
                done = await app.operations.run(operation.id)
                return f"{done.changed} revived, {done.refused + done.too_late} not"
    except (TreadleError, ValueError) as error:
        return str(error)


@contextlib.contextmanager
def _keys(pressed: Callable[[str], None]) -> Generator[None]:
    """Call `pressed` for every key, without waiting for a line."""
    import termios
    import tty

    stdin, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before: Any = termios.tcgetattr(stdin)

    def read() -> None:
        data = os.read(stdin, 1024)
        if not data:  # the terminal has gone
            pressed("q")
            return
        if data in _ESCAPES:
            pressed(_ESCAPES[data])
            return
        for key in data.decode("utf-8", "ignore"):
            if key != "\x1b":
                pressed(key)

    tty.setcbreak(stdin)
    loop.add_reader(stdin, read)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _as_json(seen: Snapshot) -> dict[str, Any]:
    from ..core.view import as_json

    return {
        "at": seen.at.isoformat().replace("+00:00", "Z"),
        "env": seen.env,
        "queues": [as_json(each) for each in seen.queues],
        "running": [as_json(each) for each in seen.running],
        "failures": [_plain(each) for each in seen.failures],
        "pods": [as_json(each) for each in seen.pods],
        "succeeded_per_minute": seen.per_minute,
        "warnings": [{"code": each.code, "text": each.text, "remedy": each.remedy} for each in seen.warnings],
    }


def _plain(view: Any) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(view)
