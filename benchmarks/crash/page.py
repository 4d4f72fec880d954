"""The crash table, and where it is written: docs/guarantees.md, between marks."""

from __future__ import annotations

import datetime as dt
import platform
import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from .peers import CrashPeer
from .scenes import JOBS, LONG_WATCH, WATCH, Killed, Poisoned

PAGE = Path(__file__).parent.parent.parent / "docs" / "guarantees.md"
KEPT = Path(__file__).parent.parent / "results" / "crash.json"
Results = Mapping[tuple[str, str, str], Killed | Poisoned | str]


def keep(results: Results) -> None:
    """Beside those of peers that were measured before: a run may be about some of them only."""
    told = msgspec.json.decode(KEPT.read_bytes()) if KEPT.exists() else {}
    told |= {" ".join(key): msgspec.to_builtins(found) for key, found in results.items()}
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")


def kept() -> Results:
    told: dict[str, Any] = msgspec.json.decode(KEPT.read_bytes())
    found: dict[tuple[str, str, str], Killed | Poisoned | str] = {}
    for key, value in told.items():
        peer, mode, scene = key.split()
        kind = Killed if scene == "killed" else Poisoned
        found[peer, mode, scene] = value if isinstance(value, str) else msgspec.convert(value, kind)
    return found


def table(peers: Sequence[CrashPeer], results: Results) -> str:
    lines = [
        "| | settings | lost | stuck or failed after 60 s | run again after | jobs of the living run twice "
        "| worker-killing job |",
        "|---|---|---|---|---|---|---|",
    ]
    for peer in peers:
        for mode in ("default", "fast"):
            found = results.get((peer.name, mode, "killed"))
            if found is None:
                continue
            poison = results.get((peer.name, mode, "poisoned"))
            lines.append(f"| {peer.title} | {mode} | {_killed(found)} | {_poisoned(poison)} |")
    return "\n".join(lines)


def _killed(found: Killed | Poisoned | str) -> str:
    if not isinstance(found, Killed):
        return "not measured | | | "
    if not found.jobs:
        return f"– | – | – | {found.twice} of {JOBS}"
    stuck = f"{found.left} stuck" if found.left else f"{found.failed} failed" if found.failed else "0"
    if found.left and found.failed:
        stuck = f"{found.left} stuck, {found.failed} failed"
    after = (
        f"not within {LONG_WATCH:.0f} s"
        if found.seconds is None
        else f"{found.seconds:.1f} s (worst {found.worst:.1f} s)"
    )
    if 0 < found.again < found.jobs:
        after += f", {found.again} of {found.jobs}"
    return f"{found.lost} of {found.jobs} | {stuck} | {after} | {found.twice} of {found.jobs}"


def _poisoned(found: Killed | Poisoned | str | None) -> str:
    if found is None:
        return ""
    if not isinstance(found, Poisoned):
        return "not measured"
    deaths = f"{found.deaths} worker{'' if found.deaths == 1 else 's'} killed"
    if found.lost:
        return f"{deaths}, then the job was lost"
    if found.ended:
        return f"{deaths}, then it ended"
    return f"{deaths} in {found.seconds:.0f} s, not ended"


def write(peers: Sequence[CrashPeer], text: str) -> None:
    said = [
        f"{dt.datetime.now(dt.UTC).date().isoformat()}, `make crash-table`, Python {platform.python_version()}, SQLite "
        f"{sqlite3.sqlite_version}. {JOBS} jobs in hand at the kill, looked at after {WATCH:.0f} s and watched for "
        f"{LONG_WATCH:.0f} s.",
        "",
        text,
        "",
        "Settings:",
        "",
    ]
    for peer in peers:
        fast = "; no setting makes it rescue" if peer.fast is None else f"; fast: {peer.fast}"
        said.append(f"- {peer.title} {peer.version}: default: {peer.default}{fast}.")
    whole = PAGE.read_text()
    marks = re.compile(r"(<!-- crash table -->\n).*?(<!-- end -->)", re.DOTALL)
    if not marks.search(whole):
        raise SystemExit(f"{PAGE} has no <!-- crash table --> … <!-- end -->")
    PAGE.write_text(marks.sub(lambda found: f"{found[1]}{chr(10).join(said)}\n{found[2]}", whole, count=1))
