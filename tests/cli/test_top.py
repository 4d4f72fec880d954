"""`treadle top`: what keys do, what is shown, and the whole on a real terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from treadle import App
from treadle.cli.top_screen import PANELS, Act, Screen, Snapshot, press, settled
from treadle.cli.top_view import drawn, shares
from treadle.core.records import FailureView
from treadle.core.view import PodView, QueueView

NOW = datetime(2026, 11, 16, tzinfo=UTC)
EVIL = "[bold red]\x1b[31mevil"


def a_queue(name: str, **fields: Any) -> QueueView:
    counts = dict.fromkeys(("ready", "scheduled", "waiting", "running", "succeeded", "failed", "cancelled"), 0)
    empty = dict.fromkeys(
        ("oldest_ready_seconds", "max_workers", "cool_until", "paused_by", "paused_at", "pause_reason", "paused_until")
    )
    rest: dict[str, Any] = {"paused": False, "slots": 5, "pods": 1, "version": 0, "capped_at": 10_000}
    return QueueView(**{"name": name, **counts, **empty, **rest, **fields})


def a_pod(**fields: Any) -> PodView:
    plain: dict[str, Any] = {
        "id": "3f9a0000", "label": "web-1", "host": "h", "pid": 1, "version": "0", "state": "live", "leader": True,
        "queues": {"mail": 5}, "tasks": (), "running": 2, "started_at": NOW, "beat_at": NOW, "lease_left": 3.0,
    }  # fmt: skip
    return PodView(**{**plain, **fields})


def a_group(**fields: Any) -> FailureView:
    plain: dict[str, Any] = {
        "cause": "c", "filter": 'cause:"c"', "task": "charge", "type": "ValueError", "place": "shop:charge",
        "count": 1300, "failed": 1204, "retrying": 96, "first_at": NOW, "last_at": NOW, "sample": "1",
        "message": "declined",
    }  # fmt: skip
    return FailureView(**{**plain, **fields})


SEEN = Snapshot(
    at=NOW,
    place="sqlite:///x.db",
    env="staging",
    queues=[a_queue("mail", ready=12_000), a_queue("slow", paused=True, paused_by="ann")],
    failures=[a_group()],
    pods=[a_pod()],
)


def pressed(keys: str, seen: Snapshot = SEEN) -> tuple[Screen, list[Act]]:
    screen, acts = Screen(), []
    for key in keys:
        screen, act = press(screen, key, seen)
        if act is not None:
            acts.append(act)
    return screen, acts


def test_tab_goes_round_and_rows_end_where_the_data_ends() -> None:
    assert [pressed("\t" * n)[0].panel for n in range(5)] == [*PANELS, "queues"]
    assert pressed("jjjjj")[0].row == 1
    assert pressed("jjk")[0].row == 0
    assert pressed("kkk")[0].row == 0
    fewer = Snapshot(at=NOW, place="", queues=[a_queue("mail")])
    assert settled(pressed("j")[0], fewer).row == 0
    assert settled(Screen(row=3), Snapshot(at=NOW, place="")).row == 0


def test_p_pauses_a_queue_or_lets_it_go_on() -> None:
    assert pressed("p")[1] == [Act("pause", "mail")]
    assert pressed("jp")[1] == [Act("resume", "slow")]


def test_p_makes_a_pod_quiet_or_lets_it_serve() -> None:
    assert pressed("\t\t\tp")[1] == [Act("quiet", "3f9a0000")]
    quiet = Snapshot(at=NOW, place="", pods=[a_pod(wish="quiet", state="quiet")])
    assert pressed("\t\t\tp", quiet)[1] == [Act("serve", "3f9a0000")]
    assert pressed("\t\t\tp", Snapshot(at=NOW, place="", pods=[a_pod(state="lost")]))[1] == []


def test_what_cannot_be_taken_back_is_asked() -> None:
    screen, acts = pressed("\t\tr")
    assert acts == []
    assert screen.asking is not None
    assert screen.asking.question == "revive 1204 × ValueError in charge?"
    assert [act.name for act in pressed("\t\try")[1]] == ["revive"]
    screen, acts = pressed("\t\trn")
    assert (acts, screen.said, screen.asking) == ([], "nothing was done", None)


def test_a_key_that_means_nothing_here_does_nothing() -> None:
    for keys in ("C", "r", "x", "\tC", "\t\tp", "\t\tC"):
        assert pressed(keys)[1] == []


def test_help_hold_and_quit() -> None:
    assert pressed("?")[0].helping
    assert not pressed("?x")[0].helping
    assert pressed(".")[0].held
    assert not pressed("..")[0].held
    assert pressed("q")[0].over


@pytest.mark.parametrize("room", [4, 10, 40])
@pytest.mark.parametrize("chosen", range(4))
def test_every_panel_has_a_row_and_none_more_than_the_screen_has(room: int, chosen: int) -> None:
    found = shares([50, 3, 0, 20], chosen, room)
    assert all(each >= 1 for each in found)
    assert sum(found) <= room + 1
    assert found[chosen] == max(found[chosen], 1)


def frame(screen: Screen, seen: Snapshot) -> str:
    console = Console(width=130, height=40, highlight=False, record=True, file=io.StringIO())
    console.print(drawn(screen, seen, 40))
    return console.export_text()


def test_a_frame_shows_what_matters() -> None:
    text = frame(Screen(), SEEN)
    assert "staging" in text
    assert text.count("12,000") == 2 and "12k" not in text  # in the head and in the row
    assert "paused by ann" in text
    assert "1,204" in text
    assert "web-1 leader" in text
    assert "quit" in text
    assert "Keys" in frame(Screen(helping=True), SEEN)


def test_text_from_anybody_is_only_text() -> None:
    seen = Snapshot(at=NOW, place="", queues=[a_queue(EVIL)], failures=[a_group(task=EVIL, message=EVIL)])
    text = frame(Screen(), seen)
    assert "\x1b" not in text
    assert "[bold red]" in text


# The command ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = App(url)
    for n in range(3):
        app.enqueue_sync("work", {"n": n}, queue="mail")
    app.close_sync()
    return url


def run(*args: str, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "treadle.cli", "top", "--url", url, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "130"})


def test_once_prints_a_frame_and_json_an_object(database: str) -> None:
    found = run("--once", url=database)
    assert (found.returncode, found.stderr) == (0, "")
    assert re.search(r"mail\s+3\s+0/0", found.stdout)
    assert "not served" in found.stdout
    seen = json.loads(run("--json", url=database).stdout)
    assert [(queue["name"], queue["ready"]) for queue in seen["queues"]] == [("mail", 3)]
    assert seen["warnings"][0]["code"] == "TREADLE-D013"


def test_a_wrong_interval_is_a_usage_error(database: str) -> None:
    assert run("--every", "1ms", url=database).returncode == 2


def test_keys_on_a_real_terminal(database: str) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "treadle.cli", "top", "--url", database, "--every", "300ms"]
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "130", "LINES": "40"}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=env)
    os.close(follower)
    app = App(database)
    try:
        shown = _until(leader, "quit")
        assert "mail" in shown
        os.write(leader, b"p")
        _until(leader, "mail is paused")
        assert app.queues.get_sync("mail").paused
        os.write(leader, b"p")
        _until(leader, "mail goes on")
        assert not app.queues.get_sync("mail").paused
        os.write(leader, b"q")
        assert process.wait(60) == 0
    finally:
        app.close_sync()
        process.kill()
        process.wait()
        os.close(leader)


def _until(terminal: int, words: str) -> str:
    """What the terminal shows, once it shows these words. Styles and moves of the cursor are left out."""
    text, deadline = "", time.monotonic() + 30
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            with contextlib.suppress(OSError):
                text += os.read(terminal, 65536).decode("utf-8", "ignore")
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
        if words in plain:
            return plain
    raise AssertionError(f"{words!r} is not shown: {plain[-500:]!r}")
