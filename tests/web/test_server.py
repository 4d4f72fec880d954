"""The server itself: real processes and raw sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from treadle import App
from treadle.cli.web import listen
from treadle.web import Dashboard
from treadle.web import server as serving

APP = """
from treadle import App
app = App(queues=["default"])
@app.task(name="hello")
async def hello(name: str) -> str:
    return name
"""


@contextmanager
def running(folder: Path, *args: str, ready: str = '"url"') -> Generator[tuple[subprocess.Popen[str], str]]:
    env = {**os.environ, "TREADLE_URL": f"sqlite:///{folder}/x.db", "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "treadle.cli", *args],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    line = ""
    try:
        while ready not in line:
            line = child.stdout.readline()
            assert line or child.poll() is None, "it has ended"
        yield child, line
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
        child.stdout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(APP)
    return tmp_path


def call(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TREADLE_URL": f"sqlite:///{folder}/x.db", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "treadle.cli", *args], cwd=folder, env=env, capture_output=True, text=True, timeout=30
    )


def test_another_address_without_a_token_is_refused(folder: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "example.com"):
        answer = call(folder, "web", "--host", host, "--port", "0")
        assert answer.returncode == 78 and "who may enter" in answer.stderr, answer.stderr


def test_it_prints_its_url_serves_and_ends_well(folder: Path) -> None:
    with running(folder, "web", "--port", "0", "--json") as (child, line):
        url = json.loads(line)["url"]
        assert url.startswith("http://127.0.0.1:")
        with httpx.Client(base_url=url) as http:
            assert http.get("/api/v1/capabilities").json()["role"] == "admin"
            made = http.post("/api/v1/jobs", json={"task": "hello", "args": {"name": "x"}}, headers={"Origin": url})
            assert made.status_code == 201, made.text
            assert http.post("/api/v1/jobs", json={"task": "hello"}).status_code == 403
            assert http.get("/", headers={"Host": "evil.example"}).status_code == 421
            assert "server" not in http.get("/healthz").headers
            with http.stream("GET", "/api/v1/stream") as stream:
                parts = stream.iter_text()
                assert next(parts).startswith(": treadle")
                child.send_signal(signal.SIGTERM)
                begun = time.monotonic()
                assert "event: end" in "".join(parts)
        assert child.wait(10) == 0 and time.monotonic() - begun < 6


def test_a_token_is_printed_once_as_a_link(folder: Path) -> None:
    with running(folder, "web", "--port", "0", "--token", "--json") as (_, line):
        found = json.loads(line)
        token = found["login"].partition("#")[2]
        with httpx.Client(base_url=found["url"]) as http:
            assert http.get("/api/v1/jobs").status_code == 401
            assert http.get("/api/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
            form = http.post("/login", data={"token": token}, headers={"Origin": found["url"]})
            assert form.status_code == 303 and http.get("/api/v1/jobs").status_code == 200


def test_tokens_are_made_listed_and_revoked(folder: Path) -> None:
    token = call(folder, "tokens", "add", "ann", "--role", "operator").stdout.strip()
    path = folder / ".treadle" / "tokens"
    assert token.startswith("tdl_") and token not in path.read_text() and path.stat().st_mode & 0o777 == 0o600
    assert call(folder, "tokens", "add", "ann").returncode == 78
    listed = json.loads(call(folder, "tokens", "list", "--json").stdout)
    assert listed == {"name": "ann", "role": "operator", "expires": None}
    bearer = {"Authorization": f"Bearer {token}"}
    with running(folder, "web", "--port", "0", "--token-file", str(path), "--json") as (_, line):
        url = f"{json.loads(line)['url']}/api/v1/capabilities"
        assert httpx.get(url, headers=bearer).json()["user"] == "ann"
        assert call(folder, "tokens", "revoke", "ann").returncode == 0
        assert httpx.get(url, headers=bearer).status_code == 401
    assert call(folder, "tokens", "revoke", "ann").returncode == 3


def test_read_only_opens_a_connection_that_cannot_write(folder: Path) -> None:
    assert call(folder, "db", "migrate").returncode == 0
    with running(folder, "web", "--port", "0", "--read-only", "--json") as (_, line):
        url = json.loads(line)["url"]
        with httpx.Client(base_url=url, headers={"Origin": url}) as http:
            assert http.get("/api/v1/queues").status_code == 200
            assert http.post("/api/v1/queues/x/pause").status_code == 403


def test_a_worker_with_a_dashboard(folder: Path) -> None:
    ready = "dashboard on"
    with running(folder, "worker", "-q", "default", "--web", "127.0.0.1:0", ready=ready) as (child, line):
        url = line.strip().rpartition(" ")[2]
        with httpx.Client(base_url=url, headers={"Origin": url}, timeout=10) as http:
            id = http.post("/api/v1/jobs", json={"task": "hello", "args": {"name": "x"}}).json()["id"]
            for _ in range(100):
                job = http.get(f"/api/v1/jobs/{id}").json()
                if job["state"] == "succeeded":
                    break
                time.sleep(0.05)
            assert job["result"] == "x"
        child.send_signal(signal.SIGTERM)
        assert child.wait(15) == 0


def test_M1_who_says_nothing_is_let_go_and_raw_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SLOWEST_HEAD", 0.5)
    web = Dashboard(App("memory://"), access="open", pages=False)
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    server = serving.Beside(serving.server(web, "127.0.0.1", port), [listening])
    server.start()
    url = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{url}/healthz").text == "ok\n"

    def talk(sent: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            got = b""
            while part := raw.recv(65536):
                got += part
            return got

    host = b"Host: 127.0.0.1\r\n"
    for nonsense in (
        b"\x00\x01\x02\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + host + b"X: " + b"a" * 40_000 + b"\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\n" + host + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /%0d%0aSet-Cookie:x=1 HTTP/1.1\r\n" + host + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ):
        answer = talk(nonsense)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), (nonsense[:80], answer[:200])
        assert b"\r\nset-cookie:x=1" not in answer.lower()
    # Those that say nothing, or do not come to an end, are let go; others are served meanwhile.
    idle = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(50)]
    for each in idle[:25]:
        each.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
    assert httpx.get(f"{url}/healthz").text == "ok\n"
    begun = time.monotonic()
    assert [each.recv(1000) for each in idle] == [b""] * 50
    assert time.monotonic() - begun < 4
    for each in idle:
        each.close()
    server.stop()
    server.join(10)
    assert not server.is_alive()
