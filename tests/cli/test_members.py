"""Changing many jobs at once: look first, ask, and never by a sticky default in production."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from treadle import App
from treadle.cli import bulk, confirm, members, shared
from treadle.cli.output import Output
from treadle.operate.operations import Operations

from .conftest import Store, Treadle


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "is_attended", lambda: True)


def test_a_filter_is_told_from_ids() -> None:
    assert members.is_filter(("state:failed",))
    assert members.is_filter(("card declined",))
    assert members.is_filter(("",))
    assert not members.is_filter(("019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11", "42"))


def test_a_dry_run_counts_and_changes_nothing(treadle: Treadle, store: Store) -> None:
    ready, ended = store.enqueue(queue="slow"), store.succeeded()
    ran = treadle("jobs", "cancel", "queue:slow,mail", "--dry-run")
    assert ran.code == 0
    assert ran.lines[:2] == ["cancel would change 1 job of 2: 1 ready, 1 succeeded", "1 too late: they have ended"]
    assert ran.lines[2] in ("queues: 1 slow, 1 mail", "queues: 1 mail, 1 slow")
    assert {line.strip() for line in ran.lines[-2:]} == {ready, ended}
    assert store.state(ready) == "ready"
    by_ids = treadle("jobs", "revive", ready, ended, "--dry-run", "--json").object
    assert by_ids["states"] == {"ready": 1, "succeeded": 1}
    assert (by_ids["action"], by_ids["matched"], by_ids["fit"]) == ("revive", 2, 1)


def test_without_a_terminal_a_filter_needs_yes(treadle: Treadle, store: Store) -> None:
    id = store.enqueue()
    ran = treadle("jobs", "cancel", "state:ready")
    assert ran.code == 2
    assert "add --yes" in ran.err
    assert store.state(id) == "ready"
    assert treadle("jobs", "cancel", "state:ready", "--yes").lines == ["cancel: 1 changed of 1"]
    assert store.state(id) == "cancelled"


def test_deleting_asks_also_for_ids(treadle: Treadle, store: Store) -> None:
    assert treadle("jobs", "delete", store.succeeded()).code == 2


@pytest.mark.usefixtures("at_a_terminal")
def test_on_a_terminal_it_asks_and_names_the_place(treadle: Treadle, store: Store, folder: Path) -> None:
    (folder / "treadle.toml").write_text('env = "staging"\ncolor = "#b5651d"')
    id = store.enqueue()
    no = treadle("jobs", "cancel", "state:ready", answer="n\n")
    assert no.code == 1
    assert "cancel 1 job: 1 ready in staging (sqlite:///treadle.db)?" in no.err
    assert store.state(id) == "ready"
    assert treadle("jobs", "cancel", "state:ready", answer="y\n").lines == ["cancel: 1 changed of 1"]
    assert store.state(id) == "cancelled"


@pytest.mark.usefixtures("at_a_terminal")
def test_nothing_to_do_is_not_asked_about(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("jobs", "cancel", "state:failed")
    assert (ran.code, ran.err) == (0, "no job matches\n")
    told = treadle("jobs", "cancel", "state:failed", "--json").object
    assert (told["act"], told["state"], told["matched"], told["changed"]) == ("cancel", "finished", 0, 0)


def test_in_production_yes_also_needs_the_environments_name(treadle: Treadle, store: Store, folder: Path) -> None:
    (folder / "treadle.toml").write_text('env = "live"\nproduction = true')
    id = store.enqueue()
    for line in (["cancel", "state:ready"], ["cancel", id], ["reschedule", id, "--now"]):
        ran = treadle("jobs", *line, "--yes")
        assert ran.code == 2
        assert "--yes also needs --env live" in ran.err
    assert treadle("jobs", "cancel", id, "--yes", "--env", "staging").code == 2
    assert store.state(id) == "ready"
    assert treadle("jobs", "cancel", id, "--yes", "--env", "live").code == 0


def test_production_without_a_name_is_refused(treadle: Treadle, store: Store, folder: Path) -> None:
    (folder / "treadle.toml").write_text("production = true")
    assert treadle("jobs", "cancel", store.enqueue(), "--yes").code == 78


def test_a_bulk_act_needs_a_filter_or_all(treadle: Treadle, store: Store) -> None:
    id = store.enqueue()
    for line in ([], ["", "--yes"], ["state:ready", "--all"]):
        ran = treadle("jobs", "cancel", *line)
        assert ran.code == 2, line
    assert store.state(id) == "ready"
    assert treadle("jobs", "cancel", "--all", "--yes").lines == ["cancel: 1 changed of 1"]
    assert store.state(id) == "cancelled"


def test_a_filter_reaches_all_and_what_was_done_is_told_and_kept(treadle: Treadle, store: Store) -> None:
    ended = store.succeeded()
    for _ in range(3):
        store.enqueue(queue="slow")
    ran = treadle("jobs", "cancel", "queue:slow,mail", "--yes", "--by", "ann", "--reason", "too many")
    assert ran.code == 1
    assert ran.lines == ["cancel: 3 changed of 4, 1 too late"]
    (done,) = treadle("operations", "list", "--json").objects
    assert ran.err == f"operation {done['id']}\n"
    assert (done["state"], done["by"], done["reason"], done["changed"]) == ("finished", "ann", "too many", 3)
    assert store.state(ended) == "succeeded"
    last, first = treadle("audit", "--json").objects
    assert (first["act"], first["subject"], first["by"]) == ("jobs.cancel", "queue:slow,mail", "ann")
    assert last["detail"] == "finished; matched 4, changed 3, too late 1, refused 0"


def test_a_filter_that_does_not_parse_is_2_and_says_where(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("jobs", "cancel", "state:ready quue:mail", "--yes")
    assert ran.code == 2
    assert 'column 13: unknown key "quue"; did you mean "queue"?' in ran.err


def test_jobs_are_moved_and_given_another_priority(treadle: Treadle, store: Store) -> None:
    one, other = store.enqueue(queue="slow"), store.enqueue(queue="slow")
    assert treadle("jobs", "move", one, "--to", "bulk").lines == [f"{one}  moved"]
    assert treadle("jobs", "priority", one, "--to", "50").lines == [f"{one}  reprioritised"]
    job = store.run(lambda app: app.jobs.get(one))
    assert (job.queue, job.priority) == ("bulk", 50)
    assert treadle("jobs", "move", "queue:slow", "--to", "bulk", "--yes").lines == ["move: 1 changed of 1"]
    assert treadle("jobs", "priority", "queue:bulk", "--to", "-5", "--yes").lines == ["priority: 2 changed of 2"]
    assert treadle("jobs", "reschedule", "queue:bulk", "--delay", "1h", "--yes").lines == ["reschedule: 2 changed of 2"]
    assert store.state(other) == "scheduled"
    assert treadle("jobs", "move", one).code == 2
    assert treadle("jobs", "priority", one, "--to", "500").code == 2
    running = store.running()
    ran = treadle("jobs", "move", running, "--to", "bulk")
    assert (ran.code, ran.lines) == (1, [f"{running}  running: only what has not started can be moved"])


def test_failures_are_grouped_and_a_group_is_revived(treadle: Treadle, store: Store) -> None:
    failed = store.failed()
    (group,) = treadle("jobs", "failures", "--json").objects
    assert (group["count"], group["sample"]) == (1, failed)
    ran = treadle("jobs", "failures")
    assert ran.lines[0].split()[:3] == ["failed", "retrying", "task"]
    assert f"treadle jobs revive 'state:failed {group['filter']}'" in ran.err
    assert treadle("jobs", "revive", group["filter"], "--yes").lines == ["revive: 1 changed of 1"]
    assert store.state(failed) == "ready"
    assert "no job has failed" in treadle("jobs", "failures").err


def test_an_operation_is_shown_stopped_and_resumed(treadle: Treadle, store: Store) -> None:
    for _ in range(3):
        store.enqueue()
    begun = store.run(lambda app: app.operations.start("cancel", "state:ready", attended=True))
    assert treadle("operations", "stop", begun.id).lines == [f"{begun.id}  stopping"]
    assert treadle("operations", "show", begun.id, "--json").object["state"] == "stopping"
    ran = treadle("operations", "resume", begun.id)
    assert (ran.code, ran.lines) == (0, ["cancel: 3 changed of 3"])
    assert "finished" in treadle("operations", "show", begun.id).out
    assert begun.id in treadle("operations", "list").out
    again = treadle("operations", "resume", begun.id)
    assert again.code == 1
    assert "nothing is left to do" in again.err
    assert treadle("operations", "stop", begun.id).code == 1
    missing = treadle("operations", "show", "nothing")
    assert missing.code == 3
    assert "`treadle operations list` has them" in missing.err


def test_single_acts_are_in_the_audit_too(treadle: Treadle, store: Store) -> None:
    id = store.enqueue(queue="slow")
    assert "nothing was done" in treadle("audit").err
    treadle("jobs", "cancel", id, "--by", "ann")
    treadle("queues", "pause", "slow", "--reason", "down")
    pause, cancel = treadle("audit", "--json").objects
    assert (cancel["act"], cancel["subject"], cancel["by"]) == ("jobs.cancel", id, "ann")
    assert (pause["act"], pause["subject"], pause["reason"]) == ("queues.pause", "slow", "down")
    assert "jobs.cancel" in treadle("audit").out


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (["cancel"], "cancelled"),
        (["reschedule", "--delay", "2h"], "rescheduled"),
        (["move", "--to", "bulk"], "moved"),
        (["priority", "--to", "50"], "reprioritised"),
        (["revive"], "revived"),
        (["delete", "--yes"], None),
    ],
)
def test_timeline_and_audit_name_who_asked(
    line: list[str], what: str | None, treadle: Treadle, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command changed the jobs namelessly, and wrote one line about all of them afterwards: killed in between, it
    left none, and no timeline ever named anybody."""

    async def gone(*args: object, **kwargs: object) -> None:
        raise RuntimeError("killed before it wrote a line of its own")

    monkeypatch.setattr("treadle.operate.audit.Audit.note", gone)
    ids = [store.failed() if line[0] in ("revive", "delete") else store.enqueue(queue="slow") for _ in range(2)]
    assert treadle("jobs", *line, *ids, "--reason", "too many").code == 0
    me = getpass.getuser()
    told = treadle("audit", "--json").objects
    assert {each["subject"] for each in told} == {*ids}
    assert {(each["act"], each["by"], each["reason"]) for each in told} == {(f"jobs.{line[0]}", me, "too many")}
    for id in ids if what else ():
        assert [each["by"] for each in treadle("jobs", "timeline", id, "--json").objects if each["what"] == what] == [
            me
        ]


@pytest.mark.parametrize(
    ("line", "act", "subject"),
    [
        (["pods", "quiet", "pod1"], "pods.quiet", "pod1"),
        (["pods", "resume", "pod1"], "pods.serve", "pod1"),
        (["pods", "stop", "pod1"], "pods.stop", "pod1"),
        (["limits", "drain", "slack"], "limits.drain", "slack"),
        (["limits", "remove", "slack"], "limits.remove", "slack"),
        (["locks", "free", "import"], "locks.free", "import"),
        (["schedules", "fire", "nightly"], "schedules.fire", "nightly"),
        (["schedules", "pause", "nightly"], "schedules.pause", "nightly"),
        (["queues", "scale", "mail", "3"], "queues.set", "mail"),
    ],
)
def test_every_act_upon_the_cluster_names_who_asked(
    line: list[str], act: str, subject: str, treadle: Treadle, store: Store
) -> None:
    """Orders to pods, an emptied limit and a schedule fired by hand left no line at all from the command line."""

    async def fill(app: App) -> None:
        await app.limits.set("slack", "10/s")
        await app.schedules.add("nightly", "0 3 * * *", "shop.welcome")
        await app.lock("import", ttl="10m", owner="somebody").acquire()

    store.running(pod="pod1")
    store.run(fill)
    assert treadle(*line, "--yes").code == 0
    told = treadle("audit", "--json").objects[0]
    assert (told["act"], told["subject"], told["by"]) == (act, subject, getpass.getuser())


def test_a_user_without_a_name_is_named_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert shared.operator() == f"uid {os.getuid()}"


def test_a_queue_is_purged_and_pruned(treadle: Treadle, store: Store) -> None:
    running, ended = store.running(), store.succeeded()
    waiting = [store.enqueue(queue="mail") for _ in range(2)]
    assert treadle("queues", "purge", "mail").code == 2
    assert treadle("queues", "purge", "mail", "--dry-run").lines[0] == "cancel would change 2 jobs of 2: 2 ready"
    assert treadle("queues", "purge", "mail", "--yes").lines == ["cancel: 2 changed of 2"]
    assert [store.state(id) for id in (*waiting, running, ended)] == ["cancelled", "cancelled", "running", "succeeded"]
    assert treadle("queues", "prune", "mail").lines == ["mail  0 jobs removed"]
    store.run(lambda app: app.queues.set("mail", keep_cancelled=0))
    assert treadle("queues", "prune", "mail", "--json").object == {"queue": "mail", "removed": 2}
    assert treadle("queues", "purge", "mial").code == 3


def test_where_somebody_watches_there_is_a_bar(treadle: Treadle, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_WATCHED", 1)
    monkeypatch.setattr(Output, "shows_progress", True)
    for _ in range(3):
        store.enqueue()
    assert treadle("jobs", "cancel", "state:ready", "--yes").lines == ["cancel: 3 changed of 3"]


@pytest.mark.usefixtures("at_a_terminal")
@pytest.mark.parametrize(("answer", "state"), [("y\n", "stopping"), ("n\n", "running")])
def test_ctrl_c_leaves_it_or_stops_it(
    answer: str, state: str, treadle: Treadle, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Operations, "run", interrupted)
    id = store.enqueue()
    ran = treadle("jobs", "cancel", "state:ready", "--yes", answer=answer)
    assert ran.code == 130
    (left,) = treadle("operations", "list", "--json").objects
    assert left["state"] == state
    assert f"operation {left['id']}" in ran.err
    assert store.state(id) == "ready"
