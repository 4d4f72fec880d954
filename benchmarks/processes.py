"""Child processes: workers, and producers that we talk with. Their processor time is read from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent.parent
LIMIT = 60.0
_PROCESS_CLOCK = 2


class Failed(Exception):
    """A measurement that could not be taken. The others go on."""


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children so far, to the nanosecond: Linux has a clock for every process."""
    total = time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += sum(cpu_seconds(int(child)) for child in (task / "children").read_text().split())
    return total


def cpu_with_ended(pid: int) -> float:
    """The same for a server: with those of its children that have ended."""
    while True:
        try:
            ended = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
            return cpu_seconds(pid) + (int(ended[13]) + int(ended[14])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            pass  # a child has ended while we looked


def memory(pid: int) -> float:
    """Bytes of a process and its children; pages that they share count once."""
    total = 0.0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            total += int(line.split()[1]) * 1024
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += sum(memory(int(child)) for child in (task / "children").read_text().split())
    return total


def run_python(code: str, env: Mapping[str, str], python: str = sys.executable) -> str:
    """What a short program prints, in a process of its own."""
    command, whole = [python, "-c", code], {**os.environ, **env}
    done = subprocess.run(command, check=False, cwd=HERE, env=whole, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise Failed(f"a child failed: {code}\n{done.stderr[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def worker(command: list[str], env: Mapping[str, str], place: Path, stop: signal.Signals) -> Iterator[int]:
    """A worker process, as its users start it; its pid. Stopped gracefully."""
    log = place / f"worker-{len(list(place.glob('worker-*.log')))}.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=HERE, env={**os.environ, **env}, stdout=out, stderr=out)
        try:
            yield process.pid
        except Failed as error:
            raise Failed(f"{error}\n{log.read_text()[-2000:]}") from None
        finally:
            _end(process, stop)


@contextlib.contextmanager
def producer(peer: str, env: Mapping[str, str], place: Path, python: str = sys.executable) -> Iterator[Producer]:
    """A process of ours that enqueues, ready to be told what."""
    command = [python, "-m", "benchmarks.child", peer]
    log = place / "producer.log"
    with log.open("a") as err:
        process = subprocess.Popen(
            command,
            cwd=HERE,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Producer(process.pid, process.stdin, process.stdout, log)
        finally:
            process.stdin.close()
            _end(process, None)
            process.stdout.close()


class Producer:
    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str], log: Path) -> None:
        self.pid = pid
        self._stdin = stdin
        self._stdout = stdout
        self._log = log

    def start(self, action: str, **arguments: Any) -> None:
        self._stdin.write(json.dumps([action, arguments]) + "\n")
        self._stdin.flush()

    def answer(self, within: float) -> dict[str, float] | None:
        """What the last action measured; None if it is still under way after so many seconds."""
        if not select.select([self._stdout], [], [], within)[0]:
            return None
        line = self._stdout.readline()
        if not line:
            raise Failed(f"the producer died\n{self._log.read_text()[-2000:]}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def do(self, action: str, **arguments: Any) -> dict[str, float]:
        self.start(action, **arguments)
        answer = self.answer(LIMIT)
        if answer is None:
            raise Failed(f"{action} took more than {LIMIT:.0f} s")
        return answer


def _end(process: subprocess.Popen[Any], stop: signal.Signals | None) -> None:
    if stop is not None and process.poll() is None:
        process.send_signal(stop)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
