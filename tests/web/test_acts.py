"""Every mutation has its effect, and a line in the audit that says who, in which role, by which request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .world import World, revive_before_the_next_write

pytestmark = pytest.mark.anyio


async def the_line(world: World, answer: Any, act: str, role: str = "admin") -> Any:
    """The newest line of the audit, which must be about this request."""
    assert answer.status_code < 300, answer.text
    line = next(each for each in await world.audit() if each.act == act)
    assert line.by == f"the-{role}"
    if not act.startswith("jobs.") or line.operation is None:
        assert f"{role}, request {answer.headers['x-request-id']}" in line.detail, line
    return line


async def test_revive(world: World) -> None:
    answer = await world.post(
        f"/jobs/{world.ids['failed']}/revive", {"priority": 5, "reason": "mended", "delay": "1h"}, "operator"
    )
    line = await the_line(world, answer, "jobs.revive", "operator")
    assert answer.json()["outcome"] == "revived" and answer.json()["job"]["state"] == "scheduled"
    assert line.subject == world.ids["failed"] and line.reason == "mended"
    assert line.detail.startswith("failed → ")
    events = await world.app.history.timeline(world.ids["failed"])
    assert "the-operator" in [event.by for event in events]
    assert (await world.app.jobs.get(world.ids["failed"])).priority == 5


async def test_cancel(world: World) -> None:
    answer = await world.post(f"/jobs/{world.ids['ready']}/cancel", role="operator")
    await the_line(world, answer, "jobs.cancel", "operator")
    assert (await world.app.jobs.get(world.ids["ready"])).state == "cancelled"


async def test_a_cancel_that_comes_too_late_says_what_is_true(world: World) -> None:
    answer = await world.post(f"/jobs/{world.ids['succeeded']}/cancel")
    assert answer.status_code == 409 and answer.json()["error"]["fields"] == {"state": "succeeded"}
    answer = await world.post(f"/jobs/{world.ids['ready']}/revive")
    assert answer.status_code == 409 and answer.json()["error"]["fields"] == {"state": "ready"}


@pytest.mark.parametrize("body", [{"now": True}, {"delay": 0}, {"at": "2026-01-01T00:00:00Z"}])
async def test_reschedule(world: World, body: dict[str, Any]) -> None:
    answer = await world.post(f"/jobs/{world.ids['scheduled']}/reschedule", body, "operator")
    await the_line(world, answer, "jobs.reschedule", "operator")
    assert (await world.app.jobs.get(world.ids["scheduled"])).state == "ready"


@pytest.mark.parametrize("body", [{}, {"now": True, "delay": 1}, {"at": "2026-01-01"}, {"at": "x"}, {"delay": "x"}])
async def test_a_reschedule_without_one_time_is_refused(world: World, body: dict[str, Any]) -> None:
    assert (await world.post(f"/jobs/{world.ids['scheduled']}/reschedule", body)).status_code == 400


async def test_priority_and_move(world: World) -> None:
    answer = await world.post(f"/jobs/{world.ids['ready']}/priority", {"priority": 50}, "operator")
    await the_line(world, answer, "jobs.priority", "operator")
    answer = await world.post(f"/jobs/{world.ids['ready']}/move", {"queue": "bulk"}, "operator")
    await the_line(world, answer, "jobs.move", "operator")
    job = await world.app.jobs.get(world.ids["ready"])
    assert (job.priority, job.queue) == (50, "bulk")


async def test_delete(world: World) -> None:
    answer = await world.ask("DELETE", f"/jobs/{world.ids['failed']}")
    await the_line(world, answer, "jobs.delete")
    assert answer.json() == {"outcome": "removed", "job": None}
    assert (await world.get(f"/jobs/{world.ids['failed']}")).status_code == 404
    alive = await world.ask("DELETE", f"/jobs/{world.ids['ready']}")
    assert alive.status_code == 409 and "cancel it first" in alive.text


async def test_a_delete_leaves_alone_what_was_revived_in_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route saw an ended job and called a verb that looked again, met the revived job, and cancelled it."""
    id = world.ids["failed"]
    revive_before_the_next_write(world, id, monkeypatch)
    answer = await world.ask("DELETE", f"/jobs/{id}")
    assert answer.status_code == 409 and answer.json()["error"]["fields"] == {"state": "ready"}
    assert "is ready: cancel it first" in answer.text
    assert (await world.app.jobs.get(id)).state == "ready"
    assert "jobs.delete" not in [line.act for line in await world.audit()]


async def test_every_act_upon_a_job_names_its_user_in_the_timeline(world: World) -> None:
    ready, failed = world.ids["ready"], world.ids["failed"]
    for path, body in (("priority", {"priority": 50}), ("move", {"queue": "bulk"}), ("reschedule", {"delay": "2h"})):
        assert (await world.post(f"/jobs/{ready}/{path}", body, "operator")).status_code == 200
    await world.post(f"/jobs/{ready}/cancel", role="operator")
    await world.post(f"/jobs/{failed}/revive", role="operator")
    told = [*await world.app.history.timeline(ready), *await world.app.history.timeline(failed)]
    named = {line.what for line in told if line.by == "the-operator"}
    assert named == {"reprioritised", "moved", "rescheduled", "cancelled", "revived"}


async def test_enqueue(world: World) -> None:
    new = {"task": "hello", "args": {"name": "eve"}, "id": "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11", "tags": ["http"]}
    answer = await world.post("/jobs", new)
    await the_line(world, answer, "jobs.enqueue")
    assert answer.status_code == 201 and answer.json() == {"outcome": "inserted", "id": new["id"]}
    assert (await world.post("/jobs", new)).json()["id"] == new["id"]  # sent again, it is enqueued once
    assert len((await world.app.jobs.find("tag:http")).jobs) == 1


async def test_enqueue_of_what_is_declared_elsewhere(world: World) -> None:
    answer = await world.post("/jobs", {"task": "other.task", "args": {"x": [1, {"y": None}]}, "queue": "other"})
    assert (await world.app.jobs.get(answer.json()["id"])).args == {"x": [1, {"y": None}]}


async def test_enqueue_many_answers_for_each(world: World) -> None:
    jobs = [
        {"task": "hello", "args": {"name": "a"}, "unique": "k"},
        {"task": "hello", "args": {"nmae": "a"}},
        {"task": "hello", "args": {"name": "b"}, "unique": "k"},
        {"task": "no such name!", "args": {}},
        {"task": "hello", "args": {"name": "c"}, "at": "yesterday"},
    ]
    answer = await world.post("/jobs", jobs)
    assert answer.status_code == 201, answer.text
    told = answer.json()["items"]
    assert [each["outcome"] for each in told] == ["inserted", "refused", "duplicate", "refused", "refused"]
    assert told[0]["id"] == told[2]["id"] and "nmae" in told[1]["error"]
    line = await the_line(world, answer, "jobs.enqueue")
    assert line.detail.startswith("2 of 5")


@pytest.mark.parametrize(
    "body",
    [
        [],
        [{"task": "hello"}] * 1001,
        {"task": "hello", "args": {}},
        {"task": "hello", "args": []},
        {"task": "hello", "args": {"name": "x"}, "priority": 101},
        {"task": "hello", "args": {"name": "x"}, "id": "not-a-uuid"},
        {"task": "hello", "args": {"name": "x"}, "within": "x"},
        {"task": ""},
        {},
        7,
    ],
)
async def test_an_enqueue_that_does_not_fit_writes_nothing(world: World, body: Any) -> None:
    before = await world.app.jobs.count()
    assert (await world.post("/jobs", body)).status_code == 400
    assert await world.app.jobs.count() == before


async def test_queues(world: World) -> None:
    answer = await world.ask(
        "PATCH", "/queues/later", json={"max_workers": 3, "rate": "10/m", "keep_failed": "forever"}
    )
    await the_line_of_queue(world, answer, "queues.set", "admin")
    assert (answer.json()["max_workers"], answer.json()["keep_failed"]) == (3, "forever")
    version = answer.json()["version"]
    stale = await world.ask("PATCH", "/queues/later", json={"max_workers": 4, "version": version - 1})
    assert stale.status_code == 409
    answer = await world.ask("PATCH", "/queues/later", json={"max_workers": None, "version": version})
    assert answer.json()["max_workers"] is None and answer.json()["rate"] is not None
    assert (await world.ask("PATCH", "/queues/later", json={})).status_code == 400
    assert (await world.ask("PATCH", "/queues/later", json={"rate": "often"})).status_code == 400


async def the_line_of_queue(world: World, answer: Any, act: str, role: str) -> Any:
    assert answer.status_code < 300, answer.text
    line = next(each for each in await world.audit() if each.act == act)
    assert line.by == f"the-{role}" and answer.headers["x-request-id"] in line.detail
    return line


async def test_pause_resume_cool_warm(world: World) -> None:
    answer = await world.post("/queues/later/pause", {"reason": "deploy", "until": "2030-01-01T00:00:00Z"}, "operator")
    line = await the_line_of_queue(world, answer, "queues.pause", "operator")
    assert answer.json()["paused"] and line.reason == "deploy"
    answer = await world.post("/queues/later/resume", role="operator")
    await the_line_of_queue(world, answer, "queues.resume", "operator")
    assert not (await world.app.queues.get("later")).paused
    answer = await world.post("/queues/later/cool", {"duration": "1h"}, "operator")
    assert answer.json()["cool_until"] is not None
    answer = await world.post("/queues/later/warm", role="operator")
    assert answer.json()["cool_until"] is None


async def test_prune(world: World) -> None:
    await world.app.queues.set("later", keep_cancelled=0)
    await asyncio.sleep(0.01)
    answer = await world.post("/prune", {"queue": "later"})
    await the_line(world, answer, "queues.prune")
    assert answer.json() == {"removed": 1}


async def test_limits(world: World) -> None:
    answer = await world.ask("PUT", "/limits/mail", json={"rate": "5/s", "burst": 9})
    await the_line(world, answer, "limits.set")
    assert (answer.json()["rate"], answer.json()["burst"]) == ("5/s", 9)
    answer = await world.post("/limits/mail/drain")
    await the_line(world, answer, "limits.drain")
    assert answer.json()["tokens"] < 9
    answer = await world.ask("DELETE", "/limits/mail")
    await the_line(world, answer, "limits.remove")
    assert (await world.get("/limits/mail")).status_code == 404


async def test_locks(world: World) -> None:
    answer = await world.ask("DELETE", "/locks/import")
    await the_line(world, answer, "locks.free")
    assert answer.json() == {"freed": True} and await world.app.locks.list() == []


async def test_schedules(world: World) -> None:
    new = {"name": "poll", "expression": "every 10m", "task": "hello", "args": {"name": "x"}, "overlap": "skip"}
    answer = await world.post("/schedules", new)
    await the_line(world, answer, "schedules.add")
    assert answer.status_code == 201 and (await world.post("/schedules", new)).status_code == 409
    answer = await world.ask("PATCH", "/schedules/poll", json={"expression": "every 5m", "version": 1})
    await the_line(world, answer, "schedules.set")
    assert (await world.app.schedules.get("poll")).expression == "every 5m"
    answer = await world.post("/schedules/poll/pause", {"reason": "wrong"}, "operator")
    await the_line(world, answer, "schedules.pause", "operator")
    answer = await world.post("/schedules/poll/fire")
    await the_line(world, answer, "schedules.fire")
    assert (await world.app.jobs.get(answer.json()["id"])).task == "hello"
    answer = await world.post("/schedules/poll/resume", role="operator")
    await the_line(world, answer, "schedules.resume", "operator")
    answer = await world.ask("DELETE", "/schedules/poll")
    await the_line(world, answer, "schedules.remove")
    assert "poll" not in [each.name for each in await world.app.schedules.list()]


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "expression": "never", "task": "hello", "args": {"name": "x"}},
        {"name": "x", "expression": "0 3 * * *", "task": "hello", "args": {}},
        {"name": "x", "expression": "0 3 * * *", "task": "hello", "args": {"name": "x"}, "tz": "Mars/Base"},
        {"name": "x", "expression": "0 3 * * *", "task": "hello", "args": {"name": "x"}, "first": "now"},
        {"name": "x", "expression": "every 0s", "task": "hello", "args": {"name": "x"}},
    ],
)
async def test_a_schedule_that_makes_no_sense_is_refused(world: World, body: Any) -> None:
    assert (await world.post("/schedules", body)).status_code == 400


async def test_pods(world: World) -> None:
    async with world.app.worker(["default"], label="pod-2"):
        (pod,) = [each for each in await world.app.pods.list() if each.live]
        answer = await world.post(f"/pods/{pod.id}/quiet", role="operator")
        line = await the_line(world, answer, "pods.quiet", "operator")
        assert answer.json()["wish"] == "quiet" and line.subject == "pod-2"
        answer = await world.post(f"/pods/{pod.id}/serve", role="operator")
        await the_line(world, answer, "pods.serve", "operator")
        answer = await world.post(f"/pods/{pod.id}/stacks", {"timeout": 10}, "operator")
        await the_line(world, answer, "pods.stacks", "operator")
        assert "asyncio" in answer.json()["stacks"] or "Thread" in answer.json()["stacks"]
        answer = await world.post(f"/pods/{pod.id}/stop")
        await the_line(world, answer, "pods.stop")
        assert answer.json()["wish"] == "stop"  # it may have gone already


async def test_an_operation_is_worked_off_here_where_there_is_no_pod(world: World) -> None:
    wish = {"act": "revive", "filter": "state:failed", "reason": "mended"}
    preview = (await world.post("/operations/preview", wish, "viewer")).json()
    assert (preview["matched"], preview["changes"], preview["tasks"]) == (2, 2, {"broken": 1, "given_up": 1})
    answer = await world.post("/operations", {**wish, "expected": 2}, "operator")
    assert answer.status_code == 202, answer.text
    for _ in range(100):
        found = (await world.get(f"/operations/{answer.json()['id']}")).json()
        if found["state"] == "finished":
            break
        await asyncio.sleep(0.02)
    assert (found["state"], found["changed"], found["by"]) == ("finished", 2, "the-operator")
    line = next(each for each in await world.audit() if each.act == "operations.start")
    assert answer.headers["x-request-id"] in line.detail and line.operation == found["id"]
    assert [each["id"] for each in (await world.get("/operations")).json()["items"]] == [found["id"]]
    assert (await world.post(f"/operations/{found['id']}/stop", role="operator")).status_code == 409


async def test_an_operation_that_would_touch_more_than_was_expected_is_refused(world: World) -> None:
    answer = await world.post("/operations", {"act": "cancel", "everything": True, "expected": 1})
    assert answer.status_code == 409 and answer.json()["error"]["fields"]["matched"] == 6
    assert await world.app.operations.list() == []


@pytest.mark.parametrize(
    "body",
    [
        {"act": "cancel"},
        {"act": "explode", "filter": "state:failed"},
        {"act": "move", "filter": "state:ready"},
        {"act": "cancel", "filter": "state:ready", "queue": "x"},
        {"act": "cancel", "filter": "state:ready", "everything": True},
        {"act": "cancel", "filter": "stat:ready"},
    ],
)
async def test_an_operation_that_makes_no_sense_is_refused(world: World, body: Any) -> None:
    assert (await world.post("/operations", body)).status_code == 400
    assert (await world.post("/operations/preview", body)).status_code == 400


async def test_an_argument_of_another_type_is_a_400_and_writes_nothing(world: World) -> None:
    before = (await world.get("/jobs")).json()
    for path, body in (
        ("/jobs", {"task": "hello", "args": {"name": 1}}),
        ("/schedules", {"name": "odd", "expression": "0 3 * * *", "task": "hello", "args": {"name": 1}}),
    ):
        answer = await world.post(path, body)
        assert answer.status_code == 400
        assert "expected str, got int" in answer.text
    assert (await world.get("/jobs")).json() == before
