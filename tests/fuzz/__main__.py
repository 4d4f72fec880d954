"""python -m tests.fuzz [--seconds 5] [TARGET …]: coverage-guided fuzzing (atheris), each target in its own process.

A finding stops it with exit code 1, prints the input, and leaves it in `.fuzz/TARGET/`: the next run begins with it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent.parent.parent / ".fuzz"
SLOW = 1.0  # seconds of computing for one input


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=5, help="for each target (5)")
    parser.add_argument("--json", action="store_true", help="counts as one object")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        _fuzz(options.one, options.seconds)
        return 0
    from .targets import TARGETS

    unknown = set(options.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"no target {min(unknown)}; there are {', '.join(TARGETS)}")
    names = options.targets or list(TARGETS)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(names, pool.map(lambda name: _run(name, options.seconds), names), strict=True))
    if any(count is None for count in found.values()):
        return 1
    if options.json:
        print(json.dumps(found))
    return 0


def _run(name: str, seconds: int) -> dict[str, int] | None:
    """The counts of one target; None after a finding."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(seconds)],
        capture_output=True,
        text=True,
        errors="replace",
    )
    runs = re.search(r"Done (\d+) runs", child.stderr)
    if child.returncode != 0 or runs is None:
        print(child.stdout[-4000:], child.stderr[-2000:], file=sys.stderr)
        print(f"{name}: a finding; its input is in {FOLDER / name}", file=sys.stderr)
        return None
    covered = int(re.findall(r"cov: (\d+)", child.stderr)[-1])
    print(f"{name:16} {int(runs[1]):>9,} inputs, {covered} edges", file=sys.stderr)
    if covered < 10:
        print(f"{name}: next to nothing was covered: the fuzzer does not see its target", file=sys.stderr)
        return None
    return {"inputs": int(runs[1]), "edges": covered}


def _fuzz(name: str, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["treadle.core", "cronsim"]):
        from .targets import SEEDS, TARGETS

    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS.get(name, ())):
        (folder / f"seed-{number}").write_bytes(seed)
    arguments = [
        sys.argv[0],
        str(folder),
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-timeout=30",  # what never ends; what is merely slow is found by its own clock
        "-rss_limit_mb=2048",
        f"-artifact_prefix={folder}/found-",
        "-print_final_stats=0",
    ]
    target = TARGETS[name]

    def in_time(data: bytes) -> None:
        begun = time.thread_time()  # its own: a busy machine is no finding
        target(data)
        took = time.thread_time() - begun
        assert took < SLOW, f"{took:.1f} s for one input"

    atheris.Setup(arguments, in_time)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
