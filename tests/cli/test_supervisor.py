"""The parent of several workers. The children here are small scripts that tell when they start and what they hear."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.cli import supervisor
from treadle.cli.supervisor import Supervisor, environ_of, next_delay, without_processes, worst

# Writes one line for its start and one for each signal, and ends with 0 after as many signals as it is told.
CHILD = """
import os, signal, sys
path, needed = sys.argv[1], int(sys.argv[2])
out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
heard = []
def on_signal(number, frame):
    heard.append(number)
    os.write(out, f"{signal.Signals(number).name}\\n".encode())
    if len(heard) >= needed:
        os._exit(0)
signal.signal(signal.SIGTERM, on_signal)
signal.signal(signal.SIGINT, on_signal)
os.write(out, f"started {os.getpid()} {os.getpgid(0)}\\n".encode())
while True:
    signal.pause()
"""


def test_a_dead_child_waits_longer_each_time_and_short_again_once_it_has_lived() -> None:
    delays = [0.0]
    for _ in range(7):
        delays.append(next_delay(delays[-1], lived=0.1))
    assert delays[1:] == [1, 2, 4, 8, 16, 30, 30]
    assert next_delay(30.0, lived=60.0) == 1


@pytest.mark.parametrize(
    ("codes", "code"),
    [([0, 0], 0), ([0, 75], 75), ([75, 70], 70), ([70, 78, 0], 78), ([0, -9], 75), ([0, 5], 1), ([], 0)],
)
def test_the_whole_ends_with_the_worst_code(codes: list[int], code: int) -> None:
    assert worst(codes) == code


def test_a_childs_command_line_has_all_but_the_number_of_processes() -> None:
    line = ["worker", "-q", "mail", "--processes", "4", "--grace=3s"]
    assert without_processes(line) == ["worker", "-q", "mail", "--grace=3s"]
    assert without_processes(["worker", "--processes=4", "--burst"]) == ["worker", "--burst"]
    assert without_processes(["worker", "--health", "9464", "--health=:1", "-q", "a"]) == ["worker", "-q", "a"]


def test_a_worker_id_gets_the_childs_number_and_none_stays_none() -> None:
    assert environ_of(2, {"A": "b"}, "eu") == {"A": "b", "TREADLE_WORKER_ID": "eu-2"}
    assert environ_of(2, {"A": "b"}, None) == {"A": "b"}
    assert environ_of(1, {}, None, "[::1]:9464") == {"TREADLE_HEALTH": "[::1]:9464"}
    assert environ_of(3, {}, None, "127.0.0.1:9464") == {"TREADLE_HEALTH": "127.0.0.1:9466"}


def supervise(
    command: list[str], processes: int, during: Callable[[], object] | None = None, *, burst: bool = False
) -> tuple[int, list[str]]:
    """Run a Supervisor, do something beside it, and answer with its code and what it said."""
    said: list[str] = []

    async def main() -> int:
        whole = Supervisor(command, processes, environ=lambda _: dict(os.environ), say=said.append, burst=burst)
        beside = asyncio.create_task(asyncio.to_thread(during)) if during else None
        code = await whole.run()
        if beside is not None:
            await beside
        return code

    return asyncio.run(main()), said


class Diary:
    """What the children write, as they write it: a pipe with a name."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self.lines: list[str] = []
        # For writing too: a pipe that nobody writes to yet would be at its end.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = ""

    def until(self, is_there: Callable[[Diary], bool]) -> None:
        while not is_there(self):
            ready, _, _ = select.select([self._pipe], [], [], 20)
            assert ready, f"never seen; the children wrote {self.lines}"
            *lines, self._rest = (self._rest + os.read(self._pipe, 65536).decode()).split("\n")
            self.lines += lines

    @property
    def started(self) -> list[list[str]]:
        return [line.split()[1:] for line in self.lines if line.startswith("started")]


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


@pytest.mark.journey
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on_one_by_one_and_all_children_are_waited_for(diary: Diary, number: signal.Signals) -> None:
    def during() -> None:
        diary.until(lambda diary: len(diary.started) == 2)
        for times in (1, 2, 3):
            os.kill(os.getpid(), number)
            diary.until(lambda diary, times=times: diary.lines.count(number.name) == 2 * times)  # type: ignore[misc]

    code, _ = supervise([sys.executable, "-c", CHILD, diary.path, "3"], 2, during)
    assert code == 0


@pytest.mark.journey
def test_each_child_leads_a_group_of_its_own_so_that_ctrl_c_reaches_it_once(diary: Diary) -> None:
    def during() -> None:
        diary.until(lambda diary: len(diary.started) == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    supervise([sys.executable, "-c", CHILD, diary.path, "1"], 2, during)
    assert all(pid == group for pid, group in diary.started)


@pytest.mark.journey
def test_a_dead_child_is_started_again(diary: Diary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.01)

    def during() -> None:
        diary.until(lambda diary: len(diary.started) == 1)
        os.kill(int(diary.started[0][0]), signal.SIGKILL)
        diary.until(lambda diary: len(diary.started) == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    code, said = supervise([sys.executable, "-c", CHILD, diary.path, "1"], 1, during)
    assert code == 0
    assert said == ["worker 1 was killed by SIGKILL; starting it again in 0.01 s"]


@pytest.mark.journey
def test_a_refused_configuration_is_not_tried_again_and_ends_all(diary: Diary) -> None:
    # The first to come refuses; the others serve until they are told to end.
    script = (
        "import os, sys\n"
        "try: os.mkdir(sys.argv[1] + '.first')\n"
        f"except FileExistsError: exec({CHILD!r})\n"
        "else: sys.exit(78)\n"
    )
    code, said = supervise([sys.executable, "-c", script, diary.path, "1"], 3)
    assert code == 78
    assert said == []


@pytest.mark.journey
def test_in_burst_mode_a_child_that_is_done_is_done() -> None:
    assert supervise([sys.executable, "-c", "pass"], 3, burst=True) == (0, [])


@pytest.mark.journey
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child of its parent's death")
def test_a_child_is_told_when_its_parent_was_killed(diary: Diary) -> None:
    child = "from treadle.cli.supervisor import die_with\nimport os\ndie_with(os.getppid())\n" + CHILD
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, sys.argv[1], '1'])"
    middle = os.posix_spawn(sys.executable, [sys.executable, "-c", parent, diary.path], os.environ)
    diary.until(lambda diary: len(diary.started) == 1)
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    diary.until(lambda diary: "SIGTERM" in diary.lines)
