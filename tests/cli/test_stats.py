"""`treadle stats` and `treadle jobs timeline`."""

from __future__ import annotations

import time

from treadle.app import App
from treadle.cli.stats import spark
from treadle.core.rollup import MINUTE, Rollup, floor
from treadle.runtime.services.sounder import Sounder

from .conftest import Store, Treadle


def fill(
    store: Store, queue: str, task: str, runs: int, *, failed: int = 0, took: float = 0.25, ago: float = 300
) -> None:
    row = Rollup(resolution=MINUTE, at=floor(time.time() - ago, MINUTE), queue=queue, task=task, pod="p")
    row.outcomes = {"succeeded": runs - failed, "failed": failed}
    for _ in range(runs):
        row.wait.add(0.01)
        row.run.add(took)
        row.total.add(took + 0.01)

    async def write(app: App) -> None:
        await app.open()
        await app.storage.roll_up([row])

    store.run(write)


def test_stats_is_a_table_of_queues_and_tasks(treadle: Treadle, store: Store) -> None:
    fill(store, "mail", "send", 20, failed=5)
    fill(store, "default", "count", 60, took=0.0002)
    head, first, second = treadle("stats").lines
    assert head.split()[:4] == ["queue", "task", "runs", "per"]
    assert first.split()[:3] == ["default", "count", "60"]
    assert float(first.split()[3]) > 1  # over the minutes since the first of them, not over an hour
    assert "25%" in second
    assert "█" in second
    assert [line.split()[1] for line in treadle("stats", "--queue", "mail").lines[1:]] == ["send"]
    assert [line.split()[0] for line in treadle("stats", "--task", "count").lines[1:]] == ["default"]


def test_stats_as_json(treadle: Treadle, store: Store) -> None:
    fill(store, "mail", "send", 4)
    found = treadle("stats", "--json", "--step", "10m").object
    assert (found["queue"], found["task"], found["series"]["step"]) == ("mail", "send", 600.0)
    assert found["series"]["whole"]["outcomes"]["succeeded"] == 4
    assert found["series"]["whole"]["run"]["max"] == 0.25
    assert sum(sum(point["outcomes"].values()) for point in found["series"]["points"]) == 4


def test_stats_tell_of_a_task_that_only_waits(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    _, row = treadle("stats").lines
    assert row.split()[:4] == ["default", "shop.welcome", "0", "0"]


def test_stats_of_nothing_says_so(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("stats", "--queue", "other")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing has run" in ran.err


def test_stats_refuses_a_step_that_is_too_fine(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("stats", "--since", "30d", "--step", "1m")
    assert ran.code != 0
    assert "at most 2,000" in ran.err
    assert "Traceback" not in ran.err


def test_a_timeline_is_told_line_by_line(treadle: Treadle, store: Store) -> None:
    id = store.succeeded()
    head, *lines = treadle("jobs", "timeline", id).lines
    assert head.split()[:2] == ["at", "what"]
    assert [line.split()[2] for line in lines] == ["enqueued", "claimed", "succeeded"]
    assert [line["what"] for line in treadle("jobs", "timeline", id, "--json").objects] == [
        "enqueued",
        "claimed",
        "succeeded",
    ]


def test_a_timeline_names_what_was_done_by_whom(treadle: Treadle, store: Store) -> None:
    id = store.enqueue(delay="1h")
    assert treadle("jobs", "reschedule", id, "--delay", "2h").code == 0
    assert [line["what"] for line in treadle("jobs", "timeline", id, "--json").objects] == ["enqueued", "rescheduled"]


def test_a_timeline_of_no_job_is_an_error(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("jobs", "timeline", "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
    assert ran.code != 0
    assert "there is no job" in ran.err


def test_sparks_show_what_is_rare_beside_what_is_many() -> None:
    assert spark([]) == ""
    assert spark([0, 0]) == ""
    assert spark([0, 1, 1000]) == "·▁█"
    assert len(spark(list(range(1441)))) <= 30
    assert spark([1] * 60, width=30) == "█" * 30


def test_one_range_against_another(treadle: Treadle, store: Store) -> None:
    fill(store, "mail", "send", 20, failed=5)
    fill(store, "mail", "send", 10, took=0.1, ago=3900)
    head, line = treadle("stats", "--since", "1h", "--against", "before").lines
    assert head.split()[:3] == ["queue", "task", "runs"]
    assert line.split()[:4] == ["mail", "send", "20", "+100%"]
    assert "more" in line and "worse" in line and "slower" in line
    found = treadle("stats", "--since", "1h", "--against", "before", "--json").object
    assert (found["runs"]["before"], found["runs"]["word"]) == (10, "more")
    assert " against " in treadle("stats", "--since", "1h", "--against", "before").err
    ran = treadle("stats", "--since", "1h", "--against", "week")
    assert ran.code == 2 and "minutes are kept for 3 days" in ran.err
    assert "no --step" in treadle("stats", "--against", "before", "--step", "5m").err


def test_nothing_to_compare(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    assert "nothing has run in either range" in treadle("stats", "--against", "before").err


def test_a_task_that_is_new_has_no_number(treadle: Treadle, store: Store) -> None:
    fill(store, "mail", "send", 20)
    (_, line) = treadle("stats", "--against", "before").lines
    assert line.split()[:4] == ["mail", "send", "20", "new"]


def test_stats_as_csv(treadle: Treadle, store: Store) -> None:
    fill(store, "mail", "=send", 20)
    head, line = treadle("stats", "--csv").lines
    assert head.startswith("queue,task,runs,bad")
    assert line.startswith("mail,'=send,20,0,")
    head, line = treadle("stats", "--against", "before", "--csv").lines
    assert head.startswith("queue,task,runs,runs_before,runs_by,runs_word")
    assert line.startswith("mail,'=send,20,0,,new")


def test_how_deep_queues_are(treadle: Treadle, store: Store) -> None:
    async def nothing(app: App) -> None:
        await app.open()

    store.run(nothing)
    assert "nobody has looked" in treadle("stats", "--depth").err

    async def look(app: App) -> None:
        await app.open()
        await Sounder(app.storage).run_once()

    store.run(look)
    assert treadle("stats", "--depth").lines[1].split()[:4] == ["all", "0", "0", "0"]
    store.enqueue()
    store.run(look)
    head, line = treadle("stats", "--depth").lines
    assert head.split()[:4] == ["queue", "ready", "scheduled", "running"]
    assert line.split() == ["default", "1", "0", "0", "1", "█"]
    found = treadle("stats", "--depth", "--json", "--since", "15m").object
    assert (found["queue"], found["points"][-1]["ready"]) == ("default", 1)
    assert treadle("stats", "--depth", "--task", "x").code == 2


def test_queues_say_that_nobody_serves_them(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    assert "not served" in treadle("queues", "list").out
    assert "not served" in treadle("queues", "show", "default").out
