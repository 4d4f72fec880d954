"""Health and metrics: asked over HTTP, of a pod that lives, blocks, drains or cannot reach its storage."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from treadle.core.errors import ConfigError
from treadle.core.job import State
from treadle.runtime import metrics
from treadle.runtime.health import Health
from treadle.runtime.pod import Pod

from .conftest import World

pytestmark = pytest.mark.anyio


def ask(server: Health, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def asked(server: Health, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(ask, server, path)


@asynccontextmanager
async def served(pod: Pod | None = None) -> AsyncIterator[Health]:
    server = Health("127.0.0.1", 0)
    if pod is not None:
        server.watch(pod)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.close)


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    """By the values of their labels, in the order of the catalogue."""
    plain = re.sub("_(count|sum|bucket)$", "", name)
    order = next(metric.labels for metric in metrics.CATALOGUE if metric.name == plain)
    return {
        tuple(sample.labels[label] for label in (*order, "le") if label in sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


async def test_a_pod_that_works_is_alive_and_ready(world: World) -> None:
    async with world.pod() as pod, served(pod) as server:
        assert await asked(server, "/healthz") == (200, "ok\n")
        status, body = await asked(server, "/readyz")
        told = json.loads(body)
        assert (status, told["ready"], told["reasons"], told["pod"]) == (200, True, [], pod.label)
        assert (await asked(server, "/elsewhere"))[0] == 404


async def test_before_there_is_a_pod_it_is_alive_and_starting() -> None:
    async with served() as server:
        assert (await asked(server, "/healthz"))[0] == 200
        status, body = await asked(server, "/readyz")
        assert (status, json.loads(body)["reasons"]) == (503, ["it is starting"])
        assert (await asked(server, "/metrics"))[0] == 200


async def test_a_head_has_no_body(world: World) -> None:
    def head(server: Health) -> tuple[int, bytes]:
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/healthz", method="HEAD")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()

    async with served() as server:
        assert await asyncio.to_thread(head, server) == (200, b"")


async def test_a_blocked_loop_still_answers(world: World) -> None:
    async with world.pod() as pod, served(pod) as server:
        answers: list[Any] = []

        def probe() -> None:
            for path in ("/healthz", "/readyz", "/metrics"):
                begun = time.monotonic()
                answers.append((ask(server, path)[0], time.monotonic() - begun))
            world.let_go.set()

        probing = asyncio.get_running_loop().run_in_executor(None, probe)
        world.let_go.wait(10)  # on the loop: nothing runs here until the probes have been answered
        await probing
    assert [status for status, _ in answers] == [200, 200, 200]
    assert max(took for _, took in answers) < 5


async def test_a_pod_that_drains_is_alive_and_not_ready(world: World) -> None:
    async with world.pod() as pod, served(pod) as server:
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        await world.started.wait()
        stopping = asyncio.create_task(pod.stop(5.0))
        await asyncio.sleep(0.05)
        assert (await asked(server, "/healthz"))[0] == 200
        status, body = await asked(server, "/readyz")
        assert (status, json.loads(body)["reasons"]) == (503, ["it is shutting down"])
        world.release.set()
        await stopping
        assert (await asked(server, "/healthz"))[0] == 200


async def test_a_pod_without_a_storage_is_alive_and_not_ready(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.pod() as pod, served(pod) as server:
        monkeypatch.setattr(pod.timed, "answered", time.monotonic() - 60)
        monkeypatch.setattr(type(pod.timed), "age", property(lambda self: 60.0))
        status, body = await asked(server, "/readyz")
        assert (status, json.loads(body)["reasons"]) == (503, ["the storage has not answered for 60 s"])
        assert (await asked(server, "/healthz"))[0] == 200


async def test_turns_that_have_ended_and_a_stuck_loop_are_seen(world: World) -> None:
    async with world.pod() as pod, served(pod) as server:
        turner = next(task for task in pod._background if task.get_name() == "turner")
        turner.cancel()
        await asyncio.sleep(0)
        assert json.loads((await asked(server, "/readyz"))[1])["reasons"] == ["its turns have ended"]
        pod.heart.is_stuck = True
        assert (await asked(server, "/healthz"))[0] == 503
        pod.heart.is_stuck = False


async def test_a_probe_asks_the_storage_nothing(world: World) -> None:
    reads = ("queues", "pods", "rollups", "due_tasks", "time", "schema", "vitals")
    async with world.pod() as pod, served(pod) as server:
        await asked(server, "/metrics")  # the first one makes the pod look around
        before = {verb: times.count for verb, times in pod.timed.seconds.items() if verb in reads}
        assert before["queues"] == 1
        for path in ("/healthz", "/readyz", "/metrics", "/metrics"):
            assert (await asked(server, path))[0] == 200
        assert {verb: times.count for verb, times in pod.timed.seconds.items() if verb in reads} == before


async def test_an_address_that_is_taken_is_refused_with_its_name() -> None:
    async with served() as server:
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{server.port}: Address already in use"):
            Health("127.0.0.1", server.port)


async def test_the_numbers_are_those_of_the_pod_and_its_queues(world: World) -> None:
    async with world.pod(slots=3) as pod, served(pod) as server:
        done = [await world.enqueue(world.act, "return") for _ in range(4)]
        for id in done:
            await world.wait_for(id, State.SUCCEEDED)
        failed = await world.enqueue(world.plain, "exit")
        await world.wait_for(failed, State.FAILED)
        hanging = await world.enqueue(world.act, "hang")
        await world.wait_for(hanging, State.RUNNING)
        await world.enqueue(world.act, "return", delay="1h")
        async with asyncio.timeout(5):
            while sum(row.run.count for row in pod.meter.totals()) < 5:
                await asyncio.sleep(0.01)
        _, text = await asked(server, "/metrics")
        world.release.set()
    finished = samples(text, "treadle_finished_total")
    assert {key: value for key, value in finished.items() if "act" in key} == {("default", "act", "succeeded"): 4}
    assert finished[("default", "plain", "failed")] == 1
    jobs = samples(text, "treadle_jobs")
    assert jobs[("default", "succeeded")] == 4
    assert (jobs[("default", "running")], jobs[("default", "scheduled")]) == (1, 1)
    assert samples(text, "treadle_running") == {("default",): 1}
    assert samples(text, "treadle_free_slots") == {(): 2}
    assert samples(text, "treadle_pods")[("live",)] == 1
    assert samples(text, "treadle_queue_unserved") == {("default",): 0}
    assert samples(text, "treadle_claimed_total") == {(): 6}
    assert samples(text, "treadle_run_seconds_count")[("default", "act")] == 4
    assert samples(text, "treadle_storage_call_seconds_count")[("claim",)] > 0
    assert samples(text, "treadle_pod_rss_bytes")[()] > 1_000_000


async def test_buckets_of_a_histogram_rise_to_the_count(world: World) -> None:
    async with world.pod() as pod, served(pod) as server:
        id = await world.enqueue(world.act, "return")
        await world.wait_for(id, State.SUCCEEDED)
        async with asyncio.timeout(5):
            while not list(pod.meter.totals()):
                await asyncio.sleep(0.01)
        _, text = await asked(server, "/metrics")
    buckets = [value for key, value in samples(text, "treadle_run_seconds_bucket").items() if "act" in key]
    assert len(buckets) == len(metrics.BOUNDS) + 1
    assert buckets == sorted(buckets)
    assert buckets[-1] == 1


async def test_every_name_of_the_catalogue_is_exported_and_no_other(world: World) -> None:
    async with world.pod() as pod, served(pod) as server:
        _, text = await asked(server, "/metrics")
    told = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert told == {metric.name for metric in metrics.CATALOGUE}
    for metric in metrics.CATALOGUE:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        for family in text_string_to_metric_families(text):
            if family.name == metric.name.removesuffix("_total"):
                labels = {label for sample in family.samples for label in sample.labels} - {"le"}
                assert labels <= set(metric.labels), metric.name


async def test_every_name_of_the_catalogue_is_documented_and_no_other() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(treadle_\w+)`", page, re.M))
    assert documented == {metric.name for metric in metrics.CATALOGUE}


async def test_the_surveyor_looks_only_while_somebody_scrapes(world: World) -> None:
    async with world.pod() as pod, served(pod) as server:
        assert not pod.surveyor.is_wanted
        assert pod.surveyor.survey is None
        await asked(server, "/readyz")
        assert not pod.surveyor.is_wanted
        await asked(server, "/metrics")
        assert pod.surveyor.is_wanted
        first = pod.surveyor.survey
        assert first is not None
        await asked(server, "/metrics")
        assert pod.surveyor.survey is first
        pod.surveyor._seen_at -= 3600  # nobody has looked for an hour
        await asked(server, "/metrics")
        assert pod.surveyor.survey is not first


@pytest.mark.parametrize("file", ["alerts.yml", "grafana.json"])
async def test_alerts_and_dashboard_use_names_and_labels_that_exist(file: str) -> None:
    text = (Path(__file__).parent.parent.parent / "docs" / "observability" / file).read_text()
    known = {metric.name: metric for metric in metrics.CATALOGUE}
    used = {re.sub("_(bucket|count|sum)$", "", name) for name in re.findall(r"\btreadle_\w+", text)}
    assert used <= set(known), used - set(known)
    assert len(used) > 5
    for name, labels in re.findall(r"\b(treadle_\w+)\{([^}]*)\}", text):
        for label in re.findall(r"(\w+)=", labels):
            assert label in known[re.sub("_(bucket|count|sum)$", "", name)].labels, (name, label)
    if file.endswith("json"):
        assert json.loads(text)["panels"]
