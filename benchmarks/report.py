"""Report: the table on stdout, the JSON, and the page of the documentation. All three are made from the samples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from . import peers
from .harness import NOISY, Result, Results, Sample, Sizes, Target, Workload

OURS = "treadle-sqlite"
UNITS = {
    "rate": ("jobs/s", "{:,.0f}"),
    "producer_us": ("producer µs/job", "{:.1f}"),
    "worker_us": ("worker µs/job", "{:.1f}"),
    "server_us": ("server µs/job", "{:.1f}"),
    "commits": ("commits/job", "{:.4f}"),
    "wal_bytes": ("WAL B/job", "{:,.0f}"),
    "trips": ("round trips/job", "{:.3f}"),
    "enqueue_rate": ("enqueued jobs/s", "{:,.0f}"),
    "worker_ms_1000": ("worker ms/1,000 jobs", "{:.1f}"),
    "server_ms_1000": ("server ms/1,000 jobs", "{:.1f}"),
    "rest_mb": ("MB at rest", "{:.0f}"),
    "after_mb": ("MB after", "{:.0f}"),
    "start_ms": ("ms to the first job", "{:.0f}"),
    "smaller_share": ("share of the slower process", "{:.0%}"),
    "p50_ms": ("p50 ms", "{:.2f}"),
    "p99_ms": ("p99 ms", "{:.2f}"),
    "max_ms": ("max ms", "{:.1f}"),
    "cpu_percent": ("% of a core", "{:.2f}"),
    "memory_mb": ("MB resident", "{:.0f}"),
    "import_ms": ("ms", "{:.0f}"),
    "modules": ("modules", "{:.0f}"),
}
MORE_IS_BETTER = {"rate", "enqueue_rate", "smaller_share"}
MAIN_FIGURES = {"rate", "p50_ms", "p99_ms", "import_ms", "start_ms"}  # the page shows how these scatter


@dataclass(frozen=True)
class Report:
    results: Results
    workloads: Sequence[Workload]
    peers: Sequence[str]
    machine: dict[str, str]
    sizes: Sizes
    command: str
    date: str
    took: float
    ours: str = OURS
    floor: dict[str, float] = field(default_factory=dict[str, float])  # of the bare parts, in microseconds

    # Stdout ----------------------------------------------------------------------------------------------------------

    def table(self) -> str:
        rows: list[tuple[str, ...]] = [("workload", "peer", "figure", "median", "lowest – highest", "target", "")]
        for workload in self.workloads:
            for peer in self._peers_of(workload):
                rows += self._rows(workload, peer)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, "", self.noise()])

    def _rows(self, workload: Workload, peer: str) -> Iterator[tuple[str, ...]]:
        if not self.results.good(workload.name, peer):
            yield workload.name, peer, "FAILED", "", "", "", ""
        for name in workload.figures:
            found = self.results.figure(workload.name, peer, name)
            if found is None:
                continue
            unit, _ = UNITS[name]
            target = next((t for t in workload.targets if t.figure == name and not t.beside), None)
            wanted, verdict = self._verdict(workload, peer, target)
            yield workload.name, peer, unit, show(name, found.median), self._range(name, found), wanted, verdict
        for target in workload.targets if peer == self.ours else ():
            if target.beside and (reached := self.results.reached(target, workload.name, peer)):
                wanted, verdict = self._verdict(workload, peer, target)
                ratio = f"× {' of '.join(reversed(target.beside))}"
                low, high = f"{reached[0].low:.2f}", f"{reached[0].high:.2f}"
                yield workload.name, peer, ratio, f"{reached[0].median:.2f}", f"{low} – {high}", wanted, verdict

    def _verdict(self, workload: Workload, peer: str, target: Target | None) -> tuple[str, str]:
        if target is None or peer != self.ours:
            return "", ""
        reached = self.results.reached(target, workload.name, peer)
        return wanted(target), "" if reached is None else "yes" if reached[1] else "NO"

    def _range(self, name: str, found: Result) -> str:
        return "" if found.rounds == 1 else f"{show(name, found.low)} – {show(name, found.high)}"

    def noise(self) -> str:
        """One line on how far to trust the rest."""
        found, spin = self.results.load("foreign"), self.results.load("spin_ms")
        if found is None:
            return "nothing was measured"
        noisy = sum(s.load["foreign"] > NOISY for s in self.results.samples)
        said = (
            f"others took {found.median:.0%} of the machine in the median measurement, {found.high:.0%} in the worst; "
            f"{noisy} of {len(self.results.samples)} measurements had more than {NOISY:.0%}"
        )
        said += " and are noise" if noisy else ""
        if again := self.results.discarded:
            said += f"; {again} disturbed measurements were discarded and taken again"
        if spin is not None:
            said += f"; the same loop took {spin.low:.0f} to {spin.high:.0f} ms of processor time ({spin.median:.0f})"
        return said

    def _peers_of(self, workload: Workload) -> list[str]:
        return [peer for peer in self.peers if self.results.cell(workload.name, peer)]

    # JSON ------------------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {
            "date": self.date,
            "command": self.command,
            "seconds": self.took,
            "machine": self.machine,
            "peers": {name: peers.find(name).settings() for name in self.peers},
            "sizes": asdict(self.sizes),
            "discarded": self.results.discarded,
            "floor": self.floor,
            "samples": self.results.as_json(),
        }
        path.write_text(json.dumps(whole, indent=1) + "\n")

    @classmethod
    def kept(cls, path: Path, workloads: Sequence[Workload], ours: str) -> Report:
        """The report of an earlier run, from its JSON."""
        whole = json.loads(path.read_text())
        samples = [Sample(**each) for each in whole["samples"]]
        names = {sample.workload for sample in samples}
        return cls(
            results=Results(samples, whole.get("discarded", 0)),
            workloads=[each for each in workloads if each.name in names],
            peers=list(whole["peers"]),
            machine=whole["machine"],
            sizes=Sizes(**whole["sizes"]),
            command=whole["command"],
            date=whole["date"],
            took=whole["seconds"],
            ours=ours,
            floor=whole.get("floor", {}),
        )

    def joined(self, other: Report) -> Report:
        """With the samples of another run, as further rounds: one that was stopped, or one that adds to it."""
        first = 1 + max((sample.round for sample in self.results.samples), default=-1)
        more = [replace(sample, round=sample.round + first) for sample in other.results.samples]
        known = [each.name for each in self.workloads]
        return replace(
            self,
            workloads=[*self.workloads, *(each for each in other.workloads if each.name not in known)],
            peers=[*self.peers, *(each for each in other.peers if each not in self.peers)],
            results=Results([*self.results.samples, *more], self.results.discarded + other.results.discarded),
            command=self.command if other.command in self.command else f"{self.command}` and `{other.command}",
            took=self.took + other.took,
            date=other.date,
        )

    # What the page says in words -------------------------------------------------------------------------------------

    def missed(self) -> Iterator[str]:
        for workload in self.workloads:
            for target in workload.targets:
                reached = self.results.reached(target, workload.name, self.ours)
                if reached is None:
                    yield f"`{workload.name}` could not be measured."
                elif not reached[1]:
                    found = f"{reached[0].median:.2f}" if target.beside else show(target.figure, reached[0].median)
                    yield f"`{workload.name}`: {found}, where {wanted(target)} is wanted."

    def lost(self) -> Iterator[str]:
        """Where another peer's figure is better than ours by more than both scatter."""
        for workload in self.workloads:
            for name in workload.figures:
                own = self.results.figure(workload.name, self.ours, name)
                for peer in self._peers_of(workload):
                    other = self.results.figure(workload.name, peer, name)
                    if peer != self.ours and own and other and _better(name, other, own):
                        theirs = f"{peers.find(peer).title} {show(name, other.median)}"
                        yield f"`{workload.name}`, {UNITS[name][0]}: {theirs}, we {show(name, own.median)}."


def show(name: str, value: float) -> str:
    return UNITS[name][1].format(value)


def wanted(target: Target) -> str:
    sign = "≥" if target.at_least else "≤"
    if target.beside is None:
        return f"{sign} {target.bound:,g} {UNITS[target.figure][0]}"
    return f"{sign} {target.bound:g} × {' of '.join(reversed(target.beside))}"


def _better(name: str, other: Result, own: Result) -> bool:
    return other.low > own.high if name in MORE_IS_BETTER else other.high < own.low
