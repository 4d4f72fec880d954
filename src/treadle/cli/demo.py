"""`treadle demo`: the product in about twenty seconds, on a database that nobody needs afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..config import PREFIX
from . import demo_view
from .command import Invocation, verb
from .errors import DONE, FAILED, INTERRUPTED
from .output import Output

if TYPE_CHECKING:
    from .demo_scene import Ending, Scene

HARD_LIMIT: Final = 60.0
_MOST_PROBLEMS: Final = 10

# For the demo and its workers alike. A dead worker is found as in any installation: `neighbours` keeps its default.
SETTINGS: Final = {
    "LEASE": "10s",
    "BEAT": "1s",
    "GRACE": "2s",
    "CANCEL_GRACE": "1s",
    "START_JITTER": "0s",
}

NEXT: Final = """
Next, with the app.py of the README (it is also in examples/hello):

  treadle worker -A app:app -q mail:20    # serve its queue
  treadle enqueue app.welcome name=Ada    # ask for a job, in a second terminal
  treadle jobs find                       # see what became of it
  treadle demo --web                      # this again, in the dashboard
"""
NEXT_IN_WEB: Final = NEXT.replace(NEXT.splitlines()[-1], "").rstrip()


@verb(
    "demo",
    "treadle demo",
    "treadle demo --web     # watch it in the dashboard, which stays open",
    "treadle demo --keep    # and look around in what it left",
)
@click.option("--keep", is_flag=True, help="Keep the database and the workers' logs.")
@click.option("--web", is_flag=True, help="Serve the dashboard on it from the start, and until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Of the dashboard. Default 8181; 0 takes a free one.")
def demo(call: Invocation, keep: bool, web: bool, port: int | None) -> int:
    """See it work: about 20 seconds of a small shop's jobs.

    A new SQLite file, two worker processes, hundreds of jobs, and what goes wrong in a week: refusals, retries, a
    provider that says 429, a worker killed with kill -9. Then the books: nothing may be lost. It ends by itself.
    """
    for option in ("url", "app"):
        if call.flags.get(option) is not None:
            raise click.UsageError(f"the demo brings its own database and App: leave out --{option}")
    folder = Path(tempfile.mkdtemp(prefix="treadle-demo-"))
    try:
        with _stage(folder):
            if not web:
                return _run(call.out, folder, keep)
            from .demo_web import dashboard, furnish, keep_open

            with dashboard(call.out, _url(folder), port) as at:
                furnish()
                code = _run(call.out, folder, keep, next_steps=NEXT_IN_WEB)
                if code == DONE:
                    keep_open(call.out, at, folder, keep=keep)
            if code == DONE and not keep:
                call.out.say("Ended: the dashboard and the worker are stopped, the database is removed.")
            return code
    finally:
        if keep:
            _say_where(call.out, folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _stage(folder: Path) -> Generator[None]:
    """The demo's own settings, for this process and those that it starts: no TREADLE_* and no treadle.toml of anybody
    else's may change the scene."""
    before = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    for name in before:
        del os.environ[name]
    own = {PREFIX + name: value for name, value in {**SETTINGS, "URL": _url(folder)}.items()}
    os.environ.update(own)
    (folder / "treadle.toml").write_text("# Settings of this folder: none.\n")
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        for name in own:
            os.environ.pop(name, None)
        os.environ.update(before)


def _run(out: Output, folder: Path, keep: bool, next_steps: str = NEXT) -> int:
    # Not before the stage is set: importing the tasks makes their App, of the settings that are there.
    from .demo_scene import Scene, Workers

    with demo_view.view_for(out) as view, Workers(folder) as workers:
        scene = Scene(workers, view, folder)
        ending = asyncio.run(_play(scene))
        if ending is None:
            return INTERRUPTED
    _report(out, scene, ending, _url(folder) if keep else None, next_steps)
    return DONE if ending.ok else FAILED


async def _play(scene: Scene) -> Ending | None:
    """The scene, to its end or to the hard limit, and the books; None if somebody asked us to stop."""
    loop = asyncio.get_running_loop()
    playing = loop.create_task(_timed(scene))
    # Ctrl-C is asyncio's own: it cancels us. These would end the process before anything is cleaned up.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup stays nohup
            loop.add_signal_handler(number, playing.cancel)
    try:
        return await playing
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return None


async def _timed(scene: Scene) -> Ending:
    from .demo_tasks import app

    async with app:
        try:
            async with asyncio.timeout(HARD_LIMIT):
                await scene.play()
        except TimeoutError:
            ending = await scene.ending()
            ending.problems.insert(0, f"not done after {HARD_LIMIT:.0f} s")
            return ending
        return await scene.ending()


# ---------------------------------------------------------------------------------------------------------------------
# What is said at the end


def _report(out: Output, scene: Scene, ending: Ending, url: str | None, next_steps: str) -> None:
    if out.as_json:
        out.data(_as_json(scene, ending, url))
    else:
        out.say("")
        demo_view.print_table(out, ending)
        out.line(f"\n{_sum(ending.totals)}")
    for problem in ending.problems[:_MOST_PROBLEMS]:
        out.warn(problem)
    if len(ending.problems) > _MOST_PROBLEMS:
        out.warn(f"and {len(ending.problems) - _MOST_PROBLEMS} more")
    if ending.ok and not out.as_json:
        out.say(next_steps.rstrip())


def _sum(totals: dict[str, int]) -> str:
    parts = [f"{totals[state]} {state}" for state in ("succeeded", "failed", "cancelled")]
    if totals["open"]:
        parts.append(f"{totals['open']} still open")
    return f"{totals['enqueued']} enqueued = {' + '.join(parts)}, {totals['lost']} lost"


def _as_json(scene: Scene, ending: Ending, url: str | None) -> dict[str, Any]:
    return {
        "ok": ending.ok,
        "seconds": round(scene.seconds, 1),
        **ending.totals,
        **scene.figures,
        "queues": ending.queues,
        "problems": ending.problems,
        "url": url,
    }


def _say_where(out: Output, folder: Path) -> None:
    out.say(f"\nKept, with the workers' logs: {folder}\n")
    out.say("  treadle web --url " + _url(folder) + "    # the dashboard")
    for command in ("jobs find 'state:failed'", "jobs find 'error:\"is gone\"'", "queues list"):
        out.say(f"  treadle {command} --url {_url(folder)}")


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'treadle.db'}"
