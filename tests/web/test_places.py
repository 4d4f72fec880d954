"""Where `treadle web` listens, and whom it asks what: real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from pathlib import Path

import httpx
import pytest

from treadle.cli import unix_sockets
from treadle.core.errors import ConfigError

from .test_server import APP, call, running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(APP)
    tmp_path.chmod(0o700)
    return tmp_path


def test_a_unix_socket_is_its_owners_and_is_gone_afterwards(folder: Path) -> None:
    path = folder / "web.sock"
    with running(folder, "web", "--unix", str(path), "--json") as (child, line):
        assert json.loads(line) == {"url": "http://localhost", "unix": str(path), "login": None}
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as http:
            assert http.get("/api/v1/capabilities").json()["role"] == "admin"
            assert http.get("/").status_code == 200
            # Who may open the socket is no browser's affair: names and origins count as everywhere.
            assert http.get("/", headers={"Host": "evil.example"}).status_code == 421
            assert http.post("/api/v1/queues/x/pause", json={}).status_code == 403
            own = {"Origin": "http://localhost"}
            assert http.post("/api/v1/queues/x/pause", json={}, headers=own).status_code == 200
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
    assert not path.exists()


def test_both_loopbacks_are_served_and_nothing_else_is_listened_on(folder: Path) -> None:
    with running(folder, "web", "--port", "0", "--json") as (child, line):
        port = int(json.loads(line)["url"].rpartition(":")[2])
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").text == "ok\n"
        if has_ipv6():
            assert httpx.get(f"http://[::1]:{port}/api/v1/capabilities").json()["role"] == "admin"
            assert httpx.get(f"http://localhost:{port}/healthz").text == "ok\n"
        assert listened_on(child.pid) <= {("127.0.0.1", port), ("::1", port)}


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def listened_on(pid: int) -> set[tuple[str, int]]:
    """The TCP addresses that a process listens on, as the kernel knows them."""
    inodes = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    found: set[tuple[str, int]] = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                host, _, port = fields[1].partition(":")
                raw = b"".join(bytes.fromhex(host)[n : n + 4][::-1] for n in range(0, len(host) // 2, 4))
                found.add((socket.inet_ntop(family, raw), int(port, 16)))
    return found


def test_behind_a_unix_socket_a_token_can_be_asked_for(folder: Path) -> None:
    path = folder / "web.sock"
    with running(folder, "web", "--unix", str(path), "--token", "--json") as (_, line):
        token = json.loads(line)["login"].partition("#")[2]
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as http:
            assert http.get("/api/v1/jobs").status_code == 401
            assert http.get("/api/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_what_a_dead_process_left_is_replaced_and_nothing_else_is(folder: Path) -> None:
    path = folder / "x.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))  # and nobody listens
    made = unix_sockets.listen(path)
    with pytest.raises(ConfigError, match="somebody listens"):
        unix_sockets.listen(path)
    assert path.is_socket()
    unix_sockets.remove(made, path)
    assert not path.exists()
    unix_sockets.remove(made, path)  # once more is nothing
    path.write_text("precious")
    with pytest.raises(ConfigError, match="is not a socket"):
        unix_sockets.listen(path)
    assert path.read_text() == "precious"
    with pytest.raises(ConfigError, match="cannot listen"):
        unix_sockets.listen(folder / "nowhere" / "x.sock")


def test_a_socket_is_private_from_its_first_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only after a chmod: somebody could have connected before it."""
    monkeypatch.setattr(os, "chmod", lambda *_: None)
    before = os.umask(0)
    try:
        made = unix_sockets.listen(folder / "x.sock")
        assert stat.S_IMODE((folder / "x.sock").stat().st_mode) == 0o600
        assert os.umask(0) == 0  # as it was
    finally:
        os.umask(before)
    unix_sockets.remove(made, folder / "x.sock")


def test_a_directory_that_others_may_write_to_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="others may write"):
        unix_sockets.listen(folder / "x.sock")
    folder.chmod(0o1777)  # as /tmp
    unix_sockets.remove(unix_sockets.listen(folder / "x.sock"), folder / "x.sock")
    folder.chmod(0o700)


def test_another_one_in_its_place_is_left_alone(folder: Path) -> None:
    path = folder / "x.sock"
    first = unix_sockets.listen(path)
    path.unlink()
    second = unix_sockets.listen(path)
    unix_sockets.remove(first, path)
    assert path.is_socket()
    unix_sockets.remove(second, path)


def test_a_name_and_a_password(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_WEB_PASSWORD", "correct-horse-battery")
    with running(folder, "web", "--port", "0", "--basic", "ann:operator", "--json") as (_, line):
        url = json.loads(line)["url"]
        with httpx.Client(base_url=url) as http:
            assert http.get("/api/v1/jobs").status_code == 401
            known = ("ann", "correct-horse-battery")
            assert http.get("/api/v1/capabilities", auth=known).json()["role"] == "operator"
            shown = http.get("/system", auth=known).text
            assert "correct-horse" not in shown and "web_password" in shown
    # Beyond this machine only where nobody can read it on the way.
    answer = call(folder, "web", "--host", "0.0.0.0", "--port", "0", "--basic", "ann")
    assert answer.returncode == 78 and "--tls-cert or --behind-proxy" in answer.stderr
    assert call(folder, "web", "--basic", "ann", "--token").returncode == 2
    assert call(folder, "web", "--unix", "x.sock", "--port", "1").returncode == 2
    refused = call(folder, "web", "--port", "0", "--basic", "ann:correct-horse-battery")
    assert refused.returncode == 78 and "correct-horse" not in refused.stderr
    monkeypatch.setenv("TREADLE_WEB_PASSWORD", "short")
    assert call(folder, "web", "--port", "0", "--basic", "ann").returncode == 78
