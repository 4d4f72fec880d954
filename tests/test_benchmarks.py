"""The harness of the benchmarks, as far as nothing has to be measured for it: peers, pages, plots."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks import page, peers, plots
from benchmarks.__main__ import _measured_by
from benchmarks.harness import Results, Sample, Sizes, Workload
from benchmarks.peers.producing import Arguments, AsyncProducer, ThreadProducer
from benchmarks.proxy import Proxy
from benchmarks.report import UNITS, Report
from benchmarks.suites import SUITES, Suite
from benchmarks.tally import Tallies, Tally

ROOT = Path(__file__).parent.parent
SERVERLESS = {"BENCH_PG_SOCKET": "/nowhere:1", "BENCH_REDIS_URL": "redis://nowhere"}
PAIRS = [(name, workload) for name, suite in SUITES.items() for workload in suite.workloads]


@pytest.mark.parametrize("name", peers.PEERS)
def test_a_peer_says_what_it_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in SERVERLESS.items():
        monkeypatch.setenv(key, value)
    peer = peers.find(name)
    settings = peer.settings()
    assert peer.name == name
    assert {"version", "worker", "job"} <= settings.keys()
    assert all(settings.values())
    assert all("==" in each for each in peer.requirements), "pin it"
    assert 0 < peer.share <= 1
    assert peer.environ(tmp_path)[peers.TALLY] == str(tmp_path / "tally")
    assert peer.worker({"default": 10}) != peer.slotted(7) or "naps-10" not in peer.does


@pytest.mark.parametrize("name", SUITES)
def test_what_the_peers_of_a_suite_do_is_measured_in_it(name: str) -> None:
    suite = SUITES[name]
    names = [each.name for each in suite.workloads]
    assert len(set(names)) == len(names)
    assert set(suite.nearest) <= set(suite.peers)
    assert set(suite.brief) <= set(names)
    assert suite.ours in suite.nearest
    for workload in suite.workloads:
        assert any(workload.name in peers.find(peer).does for peer in suite.peers), workload.name
        for target in workload.targets:
            assert workload.name in peers.find(suite.ours).does
            if target.beside:
                assert target.beside[0] in peers.find(target.beside[1]).does


@pytest.mark.parametrize(("name", "workload"), PAIRS, ids=lambda each: getattr(each, "name", each))
def test_every_figure_has_a_unit(name: str, workload: Workload) -> None:
    assert {*workload.figures, *(target.figure for target in workload.targets)} <= UNITS.keys()


# Pages ---------------------------------------------------------------------------------------------------------------


def a_report(suite: Suite) -> Report:
    """Two rounds in which we are first in everything but the pickup."""
    samples = []
    for number in range(2):
        for workload in suite.workloads:
            for rank, peer in enumerate(suite.peers):
                if workload.name not in peers.find(peer).does:
                    continue
                is_late = workload.name.startswith("pickup") and peer == suite.ours
                figures = dict.fromkeys(workload.figures, 100.0 * (9 if is_late else 1 + rank) + number)
                figures |= {name: 1e6 / (1 + rank) for name in ("rate", "enqueue_rate") if name in workload.figures}
                samples.append(Sample(workload.name, peer, number, figures, {"foreign": 0.01, "spin_ms": 7.0}, 1.0))
    floor = {"sync_us": 100.0, "task_us": 5.0, "json_us": 3.0, "commit_us": 200.0, "job_us": 0.5}
    return Report(
        results=Results(samples),
        workloads=suite.workloads,
        peers=suite.peers,
        machine={"processor": "one"},
        sizes=Sizes(),
        command="python -m benchmarks",
        date="2026-01-01",
        took=1.0,
        ours=suite.ours,
        floor=floor,
    )


@pytest.mark.parametrize("name", SUITES)
def test_a_page_is_written_from_kept_samples(name: str, tmp_path: Path) -> None:
    suite = SUITES[name]
    report = a_report(suite)
    report.save(tmp_path / "kept.json")
    again = Report.kept(tmp_path / "kept.json", suite.workloads, suite.ours)
    text = page.page(again, suite.title, suite.how, "plot.svg")
    assert text == page.page(report, suite.title, suite.how, "plot.svg")
    assert "](plot.svg)" in text
    for peer in suite.peers:
        assert peers.find(peer).title in text
    for part in ("## Figures", "## Targets", "## Where we lose", "## The floor", "## Machine and settings"):
        assert text.count(part) == 1
    assert "| a job of a drain, by the clock | a job in a bare worker | 0.5 | 1.0 | 2.0 × |" in text


def test_a_row_that_another_storage_ran_has_its_title() -> None:
    """The workload drain-sqlite is asked of Treadle on PostgreSQL and run by Treadle on SQLite: the page called its row
    "Treadle on PostgreSQL", here and on the page in docs."""
    suite = SUITES["postgres"]
    for text in (
        page.page(a_report(suite), suite.title, suite.how),
        (ROOT / "docs/benchmarks-postgres.md").read_text(),
    ):
        rows = text.partition("**drain-sqlite**")[2].partition("**drain-two**")[0]
        assert re.findall(r"^\| (Treadle.*?) \|", rows, re.M) == ["Treadle on SQLite"]


@pytest.mark.parametrize("name", SUITES)
def test_a_page_says_where_we_lose(name: str) -> None:
    suite = SUITES[name]
    text = page.page(a_report(suite), suite.title, suite.how)
    losses = text.partition("## Where we lose")[2].partition("## ")[0]
    beside = {peer for peer in suite.peers[1:] if any(each.startswith("pickup") for each in peers.find(peer).does)}
    for peer in beside:
        assert re.search(rf"`pickup[a-z-]*`, p50 ms: {re.escape(peers.find(peer).title)} ", losses)
    assert "`bulk`, jobs/s" not in losses


def test_a_peer_that_failed_stays_on_the_page() -> None:
    suite = SUITES["redis"]
    report = a_report(suite)
    for sample in report.results.samples:
        if (sample.workload, sample.peer) == ("drain", "rq"):
            object.__setattr__(sample, "error", "it did not start")
    drain = page.page(report, suite.title, suite.how).partition("**drain**")[2].partition("**drain-two**")[0]
    assert "| RQ | failed |" in drain


def test_an_older_run_without_a_floor_can_be_read(tmp_path: Path) -> None:
    suite = SUITES["sqlite"]
    a_report(suite).save(tmp_path / "kept.json")
    whole: dict[str, Any] = json.loads((tmp_path / "kept.json").read_text())
    del whole["floor"]
    (tmp_path / "kept.json").write_text(json.dumps(whole))
    text = page.page(Report.kept(tmp_path / "kept.json", suite.workloads, suite.ours))
    assert "## The floor" not in text


@pytest.mark.parametrize("name", SUITES)
def test_a_plot_has_a_bar_for_every_peer_and_both_schemes(name: str) -> None:
    suite = SUITES[name]
    report = a_report(suite)
    text = plots.svg(report, suite.title)
    root = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    bars = [each for each in root.iter(f"{space}rect") if "bar" in each.get("class", "")]
    compared = [sum(workload.name in peers.find(peer).does for peer in suite.peers) for workload in suite.workloads]
    assert len(bars) == sum(count for count in compared if count > 1)
    assert sum("ours" in each.get("class", "") for each in bars) == sum(count > 1 for count in compared)
    assert "prefers-color-scheme: dark" in text
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for each in bars:
        assert float(each.get("x", 0)) + float(each.get("width", 0)) < width
        assert float(each.get("y", 0)) + float(each.get("height", 0)) < height


# Producers -----------------------------------------------------------------------------------------------------------


class Awaited(AsyncProducer):
    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        self.sent: list[tuple[str, Arguments]] = []

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def one(self, task: str, arguments: Arguments) -> None:
        self.sent.append((task, arguments))

    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        self.sent += [(task, each) for each in every]
        return len(self.sent)


class Blocking(ThreadProducer):
    def __init__(self) -> None:
        self.sent: list[tuple[str, Arguments]] = []
        self._lock = threading.Lock()

    def one(self, task: str, arguments: Arguments) -> None:
        with self._lock:
            self.sent.append((task, arguments))

    def many(self, task: str, every: Iterator[Arguments]) -> int:
        self.sent += [(task, each) for each in every]
        return len(self.sent)


@pytest.fixture(params=["awaited", "blocking"])
def producer(request: pytest.FixtureRequest) -> Iterator[Awaited | Blocking]:
    if request.param == "blocking":
        yield Blocking()
    else:
        with asyncio.Runner() as runner, Awaited(runner) as found:
            yield found


def test_a_bulk_carries_payloads(producer: Awaited | Blocking) -> None:
    assert producer.bulk(3, task="carry", size=5) == 3
    assert producer.sent == [("carry", {"number": number, "pad": "xxxxx"}) for number in range(3)]


def test_a_steady_stream_sends_each_job_once(producer: Awaited | Blocking) -> None:
    sent = producer.steady(200, 1000.0)
    assert sent == len(producer.sent)
    assert 0 < sent <= 200
    assert {task for task, _ in producer.sent} == {"stamp"}


# The proxy that counts -----------------------------------------------------------------------------------------------


def test_the_proxy_counts_what_a_client_waits_for(tmp_path: Path) -> None:
    """A server that answers nothing but its own bytes: what goes through is not changed, and Q and S are counted."""
    (tmp_path / "server").mkdir()
    (tmp_path / "client").mkdir()
    start = (8).to_bytes(4, "big") + (196608).to_bytes(4, "big")
    bodies = ((b"Q", b"select 1\0"), (b"P", b"x"), (b"B", b"y"), (b"S", b""))
    messages = b"".join(kind + (4 + len(body)).to_bytes(4, "big") + body for kind, body in bodies)

    async def talk() -> bytes:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(len(start + messages)))
            writer.close()

        async with await asyncio.start_unix_server(echo, str(tmp_path / "server" / ".s.PGSQL.5")):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "client" / ".s.PGSQL.5"))
            writer.write(start + messages)
            back = await reader.readexactly(len(start + messages))
            writer.close()
            return back

    with Proxy(f"{tmp_path / 'server'}:5", tmp_path / "client") as proxy:
        assert asyncio.run(talk()) == start + messages
        assert proxy.trips == 2


def test_a_tally_that_is_opened_twice_keeps_its_pages(tmp_path: Path) -> None:
    """A module that is imported twice opens it twice. A file that is cut short in between kills whoever reads it."""
    first = Tally(tmp_path)
    first.tick()
    seen = Tallies(tmp_path)
    assert seen.count == 1
    second = Tally(tmp_path)
    second.tick()
    assert seen.count == Tallies(tmp_path).count == 2


def test_a_page_tells_how_it_was_measured_and_not_where_files_were_kept() -> None:
    given = ["--suite", "postgres", "--json", "/home/ann/a.json", "--rounds", "2", "--page=b.md", "--only", "drain"]
    assert _measured_by(given) == ["--suite", "postgres", "--rounds", "2", "--only", "drain"]
