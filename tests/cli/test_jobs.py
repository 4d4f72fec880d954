from __future__ import annotations

import csv
import dataclasses
import io
import json
import uuid

import pytest

from treadle.core.view import JobView, as_json

from .conftest import Store, Treadle

MISSING = str(uuid.UUID(int=7))


def test_find_lists_the_newest_first(treadle: Treadle, store: Store) -> None:
    first, second = store.enqueue(queue="mail"), store.enqueue(queue="mail")
    ran = treadle("jobs", "find", "queue:mail")
    assert ran.code == 0
    head, *rows = ran.lines
    assert head.split() == ["id", "state", "task", "queue", "attempt", "run_at", "error"]
    assert [row.split()[0] for row in rows] == [second, first]


def test_find_takes_any_number(treadle: Treadle, store: Store) -> None:
    id = store.enqueue()
    for text, found in {
        "priority:99999999999999999999": [],
        "priority:<99999999999999999999": [id],
        "attempt:>=-1e300": [id],
        "created:<9999-12-31": [id],
    }.items():
        ran = treadle("jobs", "find", text, "--json")
        assert ran.code == 0 and [each["id"] for each in ran.objects] == found, text
    for text in ("priority:nan", "attempt:>inf", "age:>99999999d", "created:10000-01-01"):
        assert treadle("jobs", "find", text).code != 0


def test_find_in_json_has_the_fields_of_the_view_one_object_a_line(treadle: Treadle, store: Store) -> None:
    id = store.failed(tags=["vip"])
    (found,) = treadle("jobs", "find", "state:failed", "--json").objects
    assert list(found) == [field.name for field in dataclasses.fields(JobView)]
    assert found["id"] == id
    assert found["tags"] == ["vip"]
    assert found["error"]["message"] == "card declined"


def test_find_as_csv_for_a_spreadsheet(treadle: Treadle, store: Store) -> None:
    id = store.failed(tags=["vip"], reason="=1+1")
    ran = treadle("jobs", "find", "state:failed", "--csv")
    (row,) = csv.DictReader(io.StringIO(ran.out, newline=""))
    assert (row["id"], row["tags"], row["error_message"]) == (id, "vip", "card declined")
    assert row["reason"] == "'=1+1"
    assert json.loads(row["args"]) is not None


def test_find_stops_at_the_limit_and_says_that_there_is_more(treadle: Treadle, store: Store) -> None:
    for _ in range(3):
        store.enqueue()
    ran = treadle("jobs", "find", "--limit", "2", "--json")
    assert len(ran.lines) == 2
    assert "there are more" in ran.err
    assert "there are more" not in treadle("jobs", "find", "--limit", "3").err


def test_find_without_a_match_says_so_beside_the_data(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("jobs", "find", "state:failed")
    assert (ran.code, ran.out, ran.err) == (0, "", "no job matches\n")
    assert treadle("jobs", "find", "state:failed", "--quiet").err == ""


def test_a_bad_filter_is_2_with_column_and_suggestion(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("jobs", "find", "state:failed quue:mail")
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert line.startswith('treadle: column 14: unknown key "quue"; did you mean "queue"?')


def test_a_filter_may_be_written_as_several_words(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    id = store.enqueue(queue="slow")
    assert [each["id"] for each in treadle("jobs", "find", "state:ready", "queue:slow", "--json").objects] == [id]
    assert [each["id"] for each in treadle("jobs", "find", "--json", "--", "-queue:mail").objects] == [id]


def test_show_has_arguments_and_every_error(treadle: Treadle, store: Store) -> None:
    id = store.failed(args={"user_id": 42}, reason="asked")
    ran = treadle("jobs", "show", id)
    assert ran.code == 0
    assert '{"user_id": 42}' in ran.out
    assert "attempt 1: error" in ran.out
    assert "ValueError: card declined" in ran.out
    assert treadle("jobs", "show", id, "--json").object == as_json(store.run(lambda app: app.jobs.get(id)))


@pytest.mark.parametrize(
    "line",
    [
        ["show", MISSING],
        ["cancel", MISSING],
        ["revive", MISSING],
        ["delete", MISSING, "--yes"],
        ["reschedule", MISSING, "--now"],
        ["cancel", "42"],
    ],
)
def test_a_job_that_is_not_there_is_3(line: list[str], treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("jobs", *line)
    assert ran.code == 3
    assert "no job" in ran.err if line[0] == "show" else "not found" in ran.out


def test_cancel_says_what_was_won_for_each(treadle: Treadle, store: Store) -> None:
    ended, running = store.succeeded(), store.running()
    ready = store.enqueue(queue="slow")
    ran = treadle("jobs", "cancel", ready, running, ended)
    assert ran.code == 1
    assert ran.lines == [f"{ready}  cancelled", f"{running}  asked", f"{ended}  too late: succeeded"]
    assert store.state(ready) == "cancelled"
    assert ran.err == "1 of 3 jobs refused\n"


def test_cancel_in_json(treadle: Treadle, store: Store) -> None:
    id = store.enqueue()
    assert treadle("jobs", "cancel", id, "--json").object == {"id": id, "outcome": "cancelled", "refused": False}


@pytest.mark.parametrize("verb", ["revive", "retry"])
def test_an_ended_job_is_revived(verb: str, treadle: Treadle, store: Store) -> None:
    id = store.failed()
    ran = treadle("jobs", verb, id)
    assert (ran.code, ran.lines) == (0, [f"{id}  revived"])
    assert store.state(id) == "ready"


def test_a_live_job_is_not_revived(treadle: Treadle, store: Store) -> None:
    id = store.enqueue()
    ran = treadle("jobs", "revive", id)
    assert (ran.code, ran.lines) == (1, [f"{id}  ready: only an ended job can be revived"])


def test_refused_outranks_missing(treadle: Treadle, store: Store) -> None:
    assert treadle("jobs", "revive", store.enqueue(), MISSING).code == 1


def test_delete_forgets_what_has_ended_and_cancels_what_has_not(treadle: Treadle, store: Store) -> None:
    ended, live = store.succeeded(), store.enqueue(queue="slow")
    ran = treadle("jobs", "delete", ended, live, "--yes")
    assert ran.lines == [f"{ended}  removed", f"{live}  cancelled instead: it had not ended"]
    assert treadle("jobs", "show", ended).code == 3


def test_reschedule(treadle: Treadle, store: Store) -> None:
    id = store.enqueue()
    assert treadle("jobs", "reschedule", id, "--delay", "2h").lines == [f"{id}  rescheduled"]
    assert store.state(id) == "scheduled"
    assert treadle("jobs", "reschedule", id, "--at", "2100-01-01T00:00Z").code == 0
    assert store.run(lambda app: app.jobs.get(id)).run_at.year == 2100
    assert treadle("jobs", "reschedule", id, "--now").code == 0
    assert store.state(id) == "ready"
    assert treadle("jobs", "reschedule", id).code == 2
    assert treadle("jobs", "reschedule", id, "--now", "--delay", "1m").code == 2


def test_what_has_ended_cannot_be_rescheduled(treadle: Treadle, store: Store) -> None:
    id = store.succeeded()
    ran = treadle("jobs", "reschedule", id, "--now")
    assert ran.code == 1
    assert ran.lines == [f"{id}  succeeded: only a scheduled or ready job can be rescheduled"]


def test_explain_says_why_and_what_to_do(treadle: Treadle, store: Store) -> None:
    id = store.enqueue(queue="mail")
    assert treadle("queues", "pause", "mail", "--reason", "far side down").code == 0
    ran = treadle("jobs", "explain", id)
    assert ran.code == 0
    assert ran.lines[0].startswith("ready: queue mail is paused")
    assert ran.lines[0].endswith("far side down")
    assert ran.lines[1:] == [
        "  try: treadle queues resume mail",
        "also: no worker is running",
        "  try: treadle worker --queues mail",
    ]
    assert ran.err == "needs action: it will not run by itself\n"
    (found,) = treadle("jobs", "explain", id, "--json").objects
    assert found["blocked"] is True
    assert [cause["code"] for cause in found["causes"]] == ["paused", "no-pods"]
    assert treadle("jobs", "explain", MISSING).code == 3
