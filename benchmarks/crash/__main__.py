"""`python -m benchmarks.crash`: see `make crash-table`."""

from __future__ import annotations

import argparse
import concurrent.futures
import sys
import tempfile
import traceback
from pathlib import Path

from .. import venvs
from ..processes import Failed
from ..server import Server
from . import page
from .peers import PEERS, CrashPeer
from .scenes import Killed, Poisoned, Scene

# Both scenes mostly wait; more of them at once would make slow starts of slow rescues.
AT_ONCE = 3


def measure(peer: CrashPeer, mode: str, scene: str, root: Path, pg: Server) -> Killed | Poisoned | str:
    place = root / f"{peer.name}-{mode}-{scene}"
    place.mkdir()
    if not peer.on_sqlite:
        pg.create(place)
    stage = Scene(peer, mode, place)
    try:
        with stage.cleaning():
            found = stage.killed() if scene == "killed" else stage.poisoned()
    except Failed as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    print(f"  {peer.name}, {mode}, {scene}: {found}", flush=True)
    return found


def main() -> None:
    asked = argparse.ArgumentParser(prog="make crash-table", description=__doc__)
    asked.add_argument("--peers", nargs="*", choices=[peer.name for peer in PEERS], default=None)
    asked.add_argument("--scenes", nargs="*", choices=("killed", "poisoned"), default=("killed", "poisoned"))
    asked.add_argument("--at-once", type=int, default=AT_ONCE)
    asked.add_argument("--write", action="store_true", help="put the table into docs/guarantees.md")
    args = asked.parse_args()
    peers = [peer for peer in PEERS if args.peers is None or peer.name in args.peers]
    for peer in peers:
        if peer.requirements:
            venvs.make(peer.name, peer.requirements)
    results: dict[tuple[str, str, str], Killed | Poisoned | str] = {}
    with tempfile.TemporaryDirectory(prefix="treadle-crash-") as folder:
        pg = Server(Path(folder))
        pg.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
                waiting = {}
                for peer in peers:
                    fastest = "fast" if peer.fast is not None else "default"
                    wanted = [(mode, "killed") for mode in dict.fromkeys(("default", fastest))] + [
                        (peer.poison_in if peer.fast is not None else fastest, "poisoned")
                    ]
                    for mode, scene in wanted:
                        if scene in args.scenes:
                            waiting[peer.name, mode, scene] = pool.submit(measure, peer, mode, scene, Path(folder), pg)
                results = {key: each.result() for key, each in waiting.items()}
        finally:
            pg.remove()
    page.keep(results)
    table = page.table(PEERS, page.kept())
    print(table)
    problems = {key: found for key, found in results.items() if isinstance(found, str)}
    for key, why in problems.items():
        print(f"{' '.join(key)}: {why}", file=sys.stderr)
    if args.write:
        page.write(PEERS, table)
    sys.exit(1 if problems else 0)


main()
