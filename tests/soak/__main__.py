"""`python -m tests.soak --minutes 10 --storage both`: see `make soak`."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from pathlib import Path

import msgspec

from . import page
from .campaign import Report, run


def main() -> None:
    asked = argparse.ArgumentParser(prog="make soak", description=__doc__)
    asked.add_argument("--minutes", type=float, default=10.0, help="of trouble, on each storage")
    asked.add_argument("--storage", choices=("sqlite", "postgres", "both"), default="both")
    asked.add_argument("--seed", default=None, help="the nemesis' and the clients' choices (not their timing)")
    asked.add_argument("--workers", type=int, default=4)
    asked.add_argument("--json", type=Path, help="write the numbers here too")
    asked.add_argument("--write", action="store_true", help="put the numbers into docs/guarantees.md")
    args = asked.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left behind
    seed = args.seed or secrets.token_hex(4)
    storages = ("sqlite", "postgres") if args.storage == "both" else (args.storage,)
    reports: list[Report] = []
    for storage in storages:
        print(f"{storage}: {args.minutes:g} min of trouble, seed {seed}", flush=True)
        reports.append(run(storage, args.minutes * 60, seed, workers=args.workers))
        print(reports[-1].text(), flush=True)
    if args.json is not None:
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(reports), indent=2))
    if args.write:
        page.write_soak(reports, args.minutes)
    sys.exit(0 if all(report.passed for report in reports) else 1)


main()
