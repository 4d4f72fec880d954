"""`treadle web` on a standby: found out by itself, said on every page, refused in the server; and over when the standby
is promoted."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.postgres_server import a_server, a_standby
from treadle import App

PAGES = (
    *("/", "/jobs", "/failures", "/queues", "/queues/mail", "/pods", "/schedules", "/performance", "/limits"),
    *("/operations", "/system"),
)
READS = ("jobs", "queues", "pods", "schedules", "limits", "operations", "series", "system", "doctor", "warnings")


async def fill(url: str) -> None:
    app = App(url)

    @app.task(name="hello", queue="mail")
    async def hello() -> None: ...

    async with app:
        await hello.enqueue()


def test_a_standby_is_shown_and_a_promoted_one_is_worked_with(tmp_path: Path) -> None:
    with a_server() as primary, a_standby(primary) as standby:
        asyncio.run(fill(primary.tcp_url))
        env = {**os.environ, "TREADLE_URL": standby.tcp_url, "PYTHONUNBUFFERED": "1"}
        child = subprocess.Popen(
            [sys.executable, "-m", "treadle.cli", "web", "--port", "0", "--json"],
            cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        try:
            url = json.loads(child.stdout.readline())["url"]
            with httpx.Client(base_url=url, headers={"Origin": url}, timeout=20) as http:
                until = time.monotonic() + 20
                while "mail" not in http.get("/queues").text and time.monotonic() < until:  # it follows, a little late
                    time.sleep(0.1)
                for path in PAGES:
                    shown = http.get(path)
                    assert shown.status_code == 200 and "can be read and not written" in shown.text, path
                    assert "/pause" not in shown.text, path
                for path in READS:
                    assert http.get(f"/api/v1/{path}").status_code == 200, path
                refused = http.post("/api/v1/queues/mail/pause", json={})
                assert refused.status_code == 403 and "for reading only" in refused.text
                standby.promote()
                until = time.monotonic() + 20
                while http.get("/api/v1/capabilities").json()["read_only"] and time.monotonic() < until:
                    time.sleep(0.2)
                assert http.post("/api/v1/queues/mail/pause", json={}).status_code == 200
                assert "can be read and not written" not in http.get("/queues").text
        finally:
            child.terminate()
            _, said = child.communicate(timeout=20)
        assert "can be read and not written" in said
