"""`python -m treadle.testing.simulation --seeds 1000`: a campaign, or one seed told in full."""

from __future__ import annotations

import argparse
import sys

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .campaign import Result, campaign
from .mill import Mill


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m treadle.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many (default 500)")
    parser.add_argument("--start", type=int, default=0, help="the first (default 0)")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one for each core)")
    parser.add_argument("--one", type=int, default=None, metavar="SEED", help="run this seed alone, and tell its story")
    chosen = parser.parse_args()
    if chosen.one is not None:
        return tell(chosen.one)
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("seeds", total=chosen.seeds)
        result = campaign(
            chosen.start, chosen.seeds, chosen.workers, lambda so_far: progress.update(bar, completed=so_far.seeds)
        )
    return report(result)


def report(result: Result) -> int:
    hours = result.virtual_seconds / 3600
    print(f"{result.seeds:,} seeds, {result.steps:,} steps, {hours:,.0f} hours of virtual time")
    for name, count in sorted(result.counts.items()):
        print(f"  {name:28} {count:>12,}")
    for failed in result.failed[:20]:
        print(f"seed {failed.seed}: {failed.broken[0].number}: {failed.broken[0].text}")
        print(f"  again: python -m treadle.testing.simulation --one {failed.seed}")
    for seed in result.unlike:
        print(f"seed {seed} left another trace when it was run again")
    if result.seeds >= 200:
        for name, count in result.missing().items():
            print(f"{name} happened only {count} times: nothing is proven about it")
    print("passed" if result.passed else "FAILED")
    return 0 if result.passed else 1


def tell(seed: int) -> int:
    world = Mill(seed)
    found = world.run()
    concerned = {word for each in found.broken for word in each.text.split()}
    for event in world.history.events:
        if not concerned or event.id in concerned or concerned & set(event.ids):
            what = " ".join(filter(None, (event.why, event.to, event.how, event.id or ",".join(event.ids), event.pod)))
            print(f"{event.at:10.3f}  {event.kind:10} {what} {event.token}".rstrip())
    for each in found.broken:
        print(f"broken {each.number}: {each.text}")
    print(f"seed {seed}: {found.steps:,} steps, {found.virtual_seconds:.0f} virtual seconds, trace {found.digest[:16]}")
    return 0 if found.passed else 1


if __name__ == "__main__":
    sys.exit(main())
