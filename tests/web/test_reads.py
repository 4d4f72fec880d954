"""What the API tells, in the shape that the command line has too."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core.view import as_json

from .world import CANARY, PAYLOAD, World

pytestmark = pytest.mark.anyio

READS = (
    "/jobs",
    "/jobs?filter=state:failed",
    "/jobs/{succeeded}",
    "/jobs/{failed}",
    "/jobs/{failed}/timeline",
    "/jobs/{failed}/attempts",
    "/jobs/{failed}/explain",
    "/jobs/{ready}/explain",
    "/counts",
    "/counts?by=queue",
    "/counts?by=task",
    "/counts?by=cause",
    "/counts?by=pod",
    "/failures",
    "/operations",
    "/audit",
    "/queues",
    "/queues/default",
    "/tasks",
    "/tasks/hello",
    "/pods",
    "/limits",
    "/limits/mail",
    "/locks",
    "/schedules",
    "/schedules/nightly",
    "/schedules/nightly/fires?n=3",
    "/series",
    "/series?since=2h&until=2026-11-15T09:00:00Z",
    "/series/tasks?since=1h",
    "/series/pods",
    "/series/depth?since=1h",
    "/series/compare?since=1h",
    "/complete?text=sta",
    "/complete?text=queue:",
    "/system",
    "/doctor",
    "/warnings",
    "/capabilities",
    "/scale?queue=default",
    "/openapi.json",
    "/metrics",
    "/healthz",
    "/readyz",
)


async def test_every_read_answers_and_tells_no_secret(world: World) -> None:
    for path in READS:
        for role in ("viewer", "viewer+payload", "operator", "admin"):
            answer = await world.get(path.format(**world.ids), role)
            assert answer.status_code == 200, (path, answer.text)
            assert CANARY not in answer.text, (path, role)
            assert role != "viewer" or PAYLOAD not in answer.text, path


async def test_a_job_has_the_shape_of_the_command_line(world: World) -> None:
    seen = (await world.get(f"/jobs/{world.ids['succeeded']}")).json()
    view = as_json(await world.app.jobs.get(world.ids["succeeded"]))
    assert seen.keys() == view.keys()
    assert seen == view | {name: seen[name] for name in ("meta",)}
    assert seen["args"] == {"name": PAYLOAD} and seen["created_at"].endswith("Z")


async def test_a_viewer_sees_that_there_is_something_hidden(world: World) -> None:
    seen = (await world.get(f"/jobs/{world.ids['failed']}", "viewer")).json()
    assert seen["args"] == seen["meta"] == {"hidden": True}
    assert seen["error"]["message"] == "card refused, token=***"


async def test_who_may_see_payloads_sees_them_redacted(world: World) -> None:
    seen = (await world.get(f"/jobs/{world.ids['failed']}", "viewer+payload")).json()
    assert seen["args"] == {"password": "***", "card": "postgresql://ann:***@db/x"}
    assert seen["meta"]["api_key"] == "***" and seen["meta"]["tenant"] == "acme"


async def test_lists_page_by_cursor(world: World) -> None:
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = (await world.get("/jobs", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        seen += [job["id"] for job in page["items"]]
        assert len(page["items"]) <= 2 and page["total"] == {"value": 6, "capped": False}
        cursor = page["next"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(world.ids.values()) and len(seen) == 6
    first = (await world.get("/limits", params={"limit": 1})).json()
    second = (await world.get("/limits", params={"limit": 1, "cursor": first["next"]})).json()
    assert first["items"][0]["name"] < second["items"][0]["name"]


async def test_audit_pages_too(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.app.queues.pause(name, by="ann")
    first = (await world.get("/audit", params={"limit": 2})).json()
    second = (await world.get("/audit", params={"limit": 50, "cursor": first["next"]})).json()
    assert [line["subject"] for line in first["items"]] == ["c", "b"]
    assert second["items"][0]["subject"] == "a" and second["next"] is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/jobs?filter=quue:x", "did you mean"),
        ("/jobs?limit=1000000000", "<= 200"),
        ("/jobs?limit=0", ">= 1"),
        ("/jobs?limit=x", "int"),
        ("/jobs?sort=id", "unknown parameter"),
        ("/jobs?cursor=' or 1=1 --", ""),
        ("/jobs?order=state;drop", "enum"),
        ("/series?since=tomorrow", ""),
        ("/series?step=1s", "whole minutes"),
        ("/series?since=300d&step=1m", "at most 2,000"),
        ("/counts?by=password", ""),
        ("/stream?topics=all", "topics are"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_words(world: World, path: str, words: str) -> None:
    answer = await world.get(path)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["kind"] == "validation" and words in error["message"]
    assert error["request_id"] == answer.headers["x-request-id"] and error["code"] == "TREADLE-H400"


@pytest.mark.parametrize(
    "path",
    [
        "/jobs/nothing",
        "/jobs/019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11",
        "/jobs/019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11/explain",
        "/jobs/019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11/stream",
        "/operations/nothing",
        "/operations/019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11",
        "/schedules/nothing",
        "/pods/nothing",
        "/limits/nothing",
        "/tasks/nothing",
        "/failures/nothing",
        "/scale?queue=nothing",
        "/queues/..",
        "/nothing",
    ],
)
async def test_what_is_not_there_is_not_found(world: World, path: str) -> None:
    answer = await world.get(path)
    assert answer.status_code == 404 and answer.json()["error"]["kind"] == "not_found", answer.text


async def test_a_task_is_described_by_its_schema(world: World) -> None:
    found = (await world.get("/tasks/hello")).json()
    assert found["schema"]["properties"] == {"name": {"type": "string"}, "times": {"type": "integer", "default": 1}}
    assert found["schema"]["required"] == ["name"] and found["options"]["queue"] == "default"


@pytest.mark.parametrize(
    ("text", "at", "start", "some"),
    [
        ("sta", None, 0, "state:"),
        ("state:fa", None, 6, "failed"),
        ("-state:fa", None, 7, "failed"),
        ("queue:default,la", None, 14, "later"),
        ("task:he state:x", 7, 5, "hello"),
        ("is:", None, 3, "stuck"),
        ("tag:", None, 4, "vip"),
        ("args", None, 0, "args."),
        ("schedule:n", None, 9, "nightly"),
    ],
)
async def test_a_filter_is_completed(world: World, text: str, at: int | None, start: int, some: str) -> None:
    params: dict[str, Any] = {"text": text, **({} if at is None else {"at": at})}
    found = (await world.get("/complete", params=params)).json()
    assert found["start"] == start and some in [each["text"] for each in found["items"]]


async def test_a_cause_is_completed_so_that_it_parses(world: World) -> None:
    found = (await world.get("/complete", params={"text": "cause:"})).json()["items"]
    for each in found:
        page = (await world.get("/jobs", params={"filter": f"cause:{each['text']}"})).json()
        assert len(page["items"]) == 1


async def test_failures_are_grouped_and_found_by_their_filter(world: World) -> None:
    page = (await world.get("/failures")).json()
    group = next(each for each in page["items"] if each["task"] == "broken")
    assert group["type"] == "ValueError" and group["count"] == 1
    found = (await world.get("/jobs", params={"filter": group["filter"]})).json()
    assert [job["id"] for job in found["items"]] == [world.ids["failed"]]
    assert (await world.get(f"/failures/{group['cause']}")).json() == group


async def test_counts_are_asked_once_in_two_seconds(world: World) -> None:
    before = (await world.get("/counts")).json()["counts"]["ready"]
    await world.app.enqueue("hello", {"name": "x"}, queue="later")
    assert (await world.get("/counts")).json()["counts"]["ready"] == before
    world.web.counts._kept.clear()
    assert (await world.get("/counts")).json()["counts"]["ready"] == before + 1


async def test_metrics_show_the_cluster(world: World) -> None:
    text = (await world.get("/metrics")).text
    assert 'treadle_jobs{queue="later",state="ready"} 1.0' in text and "treadle_web_streams 0.0" in text


async def test_scale_tells_the_time_to_drain(world: World) -> None:
    assert (await world.get("/scale?queue=later")).json()["value"] == 86400.0
    assert (await world.get("/scale?queue=default")).json()["value"] == 0.0
