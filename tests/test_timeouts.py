"""A timeout is called a timeout wherever a person reads of it: pages, the command line, the log of a real worker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.web.world import client
from treadle import App
from treadle.web import Dashboard

pytestmark = pytest.mark.anyio

OURS = ("CancelledError", "Terminated")  # the shapes in which our stop arrives
NAMES = ("on_the_loop", "in_a_child", "raises_then")
SHOP = """
import asyncio, time
from treadle import App

app = App()

@app.task(name="on_the_loop", timeout=0.25, retry=1)
async def on_the_loop() -> None:
    await asyncio.sleep(60)

@app.task(name="in_a_child", timeout=0.25, retry=1, executor="process")
def in_a_child() -> None:
    time.sleep(60)

@app.task(name="raises_then", timeout=0.25, retry=1)
async def raises_then() -> None:
    try:
        await asyncio.sleep(60)
    finally:
        raise ValueError("could not clean up")
"""


async def test_a_timeout_is_called_a_timeout(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    url = f"sqlite:///{tmp_path}/jobs.db"
    env = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
    env |= {"TREADLE_URL": url, "TREADLE_APP": "shop:app"}
    command = [sys.executable, "-m", "treadle.cli"]

    def treadle(*args: str) -> str:
        return subprocess.run([*command, *args], cwd=tmp_path, env=env, capture_output=True, text=True).stdout

    app = App(url)
    async with app:
        ids = {name: (await app.enqueue(name)).id for name in NAMES}
        with subprocess.Popen(
            [*command, "worker", "-q", "default"], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
        ) as worker:
            async with asyncio.timeout(120):
                for id in ids.values():
                    while (await app.jobs.get(id)).state != "failed":
                        await asyncio.sleep(0.05)
            worker.terminate()
            log = worker.communicate()[1]
        web = Dashboard(app, access="open")
        async with client(web) as http:
            pages = {
                path: (await http.get(path)).text for path in ("/failures", *(f"/jobs/{id}" for id in ids.values()))
            }
        await web.close()
    shown = {name: treadle("jobs", "show", id) for name, id in ids.items()}
    own = (f"/jobs/{ids['raises_then']}", "raises_then")  # what its code met before it raised is in its traceback
    for place, text in {**pages, **shown, "failures": treadle("jobs", "failures")}.items():
        assert "timeout" in text and (place in own or not any(each in text for each in OURS)), (place, text)
    assert log.count("failed for good, attempt 1 of 1: timeout: ran past its timeout of 0.25 s") == 3
    assert [log.count(each) for each in OURS] == [1, 0], log
    assert shown["on_the_loop"].count("timeout: ran past its timeout of 0.25 s") == 1
    assert "could not clean up" in shown["raises_then"]
