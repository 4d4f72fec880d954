from __future__ import annotations

import json
import uuid
from pathlib import Path

import click
import pytest

from treadle import App
from treadle.cli.enqueue import read_arguments

from .conftest import Store, Treadle


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ((), {}),
        (('{"user_id": 42, "tags": ["a"]}',), {"user_id": 42, "tags": ["a"]}),
        (("user_id=42", "name=Ann", "vip=true", "note="), {"user_id": 42, "name": "Ann", "vip": True, "note": ""}),
        (
            ("list=[1,2]", "text=1h30m", "equals=a=b", "open=[draft", 'odd="NaN"'),
            {"list": [1, 2], "text": "1h30m", "equals": "a=b", "open": "[draft", "odd": "NaN"},
        ),
    ],
)
def test_arguments_are_json_or_names_with_values(given: tuple[str, ...], arguments: dict[str, object]) -> None:
    assert read_arguments(given) == arguments


@pytest.mark.parametrize("given", [("[1]",), ('{"a": 1',), ("42",), ("a=1", "a=2"), ("no-name=1",), ('{"a": NaN}',)])
def test_other_arguments_are_usage_errors(given: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError):
        read_arguments(given)


def test_the_id_is_printed_and_the_database_made(treadle: Treadle, store: Store) -> None:
    ran = treadle("enqueue", "shop.welcome", "user_id=42", "--queue", "mail")
    assert ran.code == 0
    (id,) = ran.lines
    job = store.run(lambda app: app.jobs.get(id))
    assert (job.task, job.queue, job.args, job.state) == ("shop.welcome", "mail", {"user_id": 42}, "ready")


def test_a_database_that_enqueue_creates_is_named(treadle: Treadle, folder: Path) -> None:
    """In a wrong working directory `treadle enqueue` made a new, empty database without a word, and the job in it was
    never run: the workers serve another file."""
    first, second = treadle("enqueue", "shop.welcome", "user_id=42"), treadle("enqueue", "shop.welcome", "user_id=43")
    assert first.err == (
        f"new database {folder}/treadle.db: no file was there (TREADLE_URL or --url names another one)\n"
    )
    assert second.err == ""


def test_a_refused_enqueue_creates_no_database(treadle: Treadle, folder: Path) -> None:
    """The command opened the storage before it looked at the options: a typo left an empty database behind."""
    assert treadle("enqueue", "shop.welcome", "--debounce", "5s", "--delay", "1m").code == 2
    assert list(folder.iterdir()) == []


def test_a_database_that_schedules_add_creates_is_named(treadle: Treadle, folder: Path) -> None:
    add = ("schedules", "add", "--yes", "nightly", "0 4 * * *", "shop.welcome", "user_id=1")
    assert f"new database {folder}/treadle.db" in treadle(*add).err


@pytest.mark.parametrize(
    "command",
    [
        ("jobs", "find"),
        ("jobs", "failures"),
        ("queues", "list"),
        ("pods", "list"),
        ("schedules", "list"),
        ("stats",),
        ("top", "--once"),
        ("doctor",),
        ("web",),
    ],
)
def test_a_command_that_only_looks_creates_no_database(
    command: tuple[str, ...], treadle: Treadle, folder: Path
) -> None:
    ran = treadle(*command)
    assert ran.code != 0
    assert "no such database" in ran.out + ran.err
    assert list(folder.iterdir()) == []


def test_every_option_arrives(treadle: Treadle, store: Store) -> None:
    own = str(uuid.uuid4())
    ran = treadle(
        *("enqueue", "shop.welcome", '{"user_id": 1}', "--delay", "1h", "--queue", "slow", "--priority", "-7"),
        *("--unique", "welcome:1", "--tag", "vip", "--tag", "eu", "--reason", "asked", "--max-attempts", "3"),
        *("--timeout", "90s", "--id", own),
    )
    assert ran.lines == [own]
    job = store.run(lambda app: app.jobs.get(own))
    assert (job.queue, job.priority, job.tags, job.reason) == ("slow", -7, ("vip", "eu"), "asked")
    assert (job.max_attempts, job.timeout, job.state) == (3, 90.0, "scheduled")
    assert job.unique_key is not None


def test_json_tells_the_outcome_and_a_duplicate_is_none_of_an_error(treadle: Treadle) -> None:
    first = treadle("enqueue", "shop.welcome", "--unique", "one", "--json")
    again = treadle("enqueue", "shop.welcome", "--unique", "one", "--json")
    assert (first.code, again.code) == (0, 0)
    assert first.object["outcome"] == "inserted"
    assert again.object == {"id": first.object["id"], "outcome": "duplicate"}
    assert "a live job holds the key" in again.err


def test_the_same_id_twice_is_enqueued_once(treadle: Treadle, store: Store) -> None:
    own = str(uuid.uuid4())
    for _ in range(2):
        assert treadle("enqueue", "shop.welcome", "--id", own).lines == [own]
    assert sum(store.run(lambda app: app.jobs.count()).values()) == 1


def test_a_named_apps_task_brings_its_options(treadle: Treadle, shop: str, store: Store) -> None:
    ran = treadle("enqueue", "shop.broken", "-A", shop)
    job = store.run(lambda app: app.jobs.get(ran.lines[0]))
    assert (job.queue, job.max_attempts) == ("mail", 1)


def test_an_unknown_task_of_a_named_app_is_refused_with_a_suggestion(treadle: Treadle, shop: str, folder: Path) -> None:
    for wrong in ("welcome", "shop.welcom"):
        ran = treadle("enqueue", wrong, "-A", shop)
        assert ran.code == 2
        assert 'did you mean "shop.welcome"?' in ran.err
    assert not (folder / "treadle.db").exists()


def test_an_unknown_task_of_an_app_that_was_only_found_is_a_warning(treadle: Treadle, shop: str, folder: Path) -> None:
    (folder / "shop.py").rename(folder / "app.py")
    ran = treadle("enqueue", "shop.welcom")
    assert ran.code == 0
    assert 'did you mean "shop.welcome"?' in ran.err
    assert len(ran.lines) == 1


def test_arguments_that_do_not_fit_the_task_are_refused_before_anything_is_written(
    treadle: Treadle, shop: str, store: Store
) -> None:
    ran = treadle("enqueue", "shop.welcome", "user=1", "-A", shop)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert sum(store.run(lambda app: app.jobs.count()).values()) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--delay", "soon"],
        ["--at", "2026-11-15T09:00"],
        ["--delay", "1m", "--at", "2026-11-15T09:00Z"],
        ["--priority", "101"],
        ["--max-attempts", "0"],
        ["--id", "7"],
        ["--queue", "-mail"],
        ["--tag", "x" * 200],
        ["nothing"],
    ],
)
def test_a_wrong_option_is_a_usage_error(wrong: list[str], treadle: Treadle) -> None:
    ran = treadle("enqueue", "shop.welcome", *wrong)
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert line.startswith("treadle: ")


def test_waiting_prints_the_result_alone(treadle: Treadle, shop: str, store: Store) -> None:
    id = store.succeeded()
    ran = treadle("enqueue", "shop.welcome", "user_id=1", "-A", shop, "--id", id, "--wait", "--timeout-wait", "5s")
    assert (ran.code, ran.out) == (0, '"sent"\n')
    assert id in ran.err
    object_ = treadle("enqueue", "shop.welcome", "user_id=1", "-A", shop, "--id", id, "--wait", "--json").object
    assert object_ == {"id": id, "outcome": "inserted", "state": "succeeded", "result": "sent"}


def test_a_result_that_was_not_kept_is_told_and_no_failure(treadle: Treadle, store: Store) -> None:
    id = store.unkept()
    ran = treadle("enqueue", "shop.welcome", "--id", id, "--wait")
    assert (ran.code, ran.out) == (0, "null\n")
    assert "its result was not kept: the type set is not JSON" in ran.err.splitlines()[-1]
    said = treadle("enqueue", "shop.welcome", "--id", id, "--wait", "--json").object
    assert (said["result"], said["warning"]) == (None, "result not kept: the type set is not JSON")
    shown = treadle("jobs", "show", id)
    assert "result not kept: the type set is not JSON" in shown.out
    assert treadle("jobs", "show", id, "--json").object["warning"] == said["warning"]


def test_waiting_for_a_job_that_failed_is_1(treadle: Treadle, store: Store) -> None:
    id = store.failed()
    ran = treadle("enqueue", "shop.welcome", "--id", id, "--wait")
    assert (ran.code, ran.out) == (1, "")
    assert "card declined" in ran.err.splitlines()[-1]


def test_waiting_in_vain_is_1_and_the_job_goes_on(treadle: Treadle, store: Store) -> None:
    ran = treadle("enqueue", "shop.welcome", "--timeout-wait", "10ms")
    assert ran.code == 1
    assert "it goes on" in ran.err
    counts = store.run(lambda app: app.jobs.count("state:ready"))
    assert json.dumps(counts).count("1") == 1


def test_a_storage_that_there_is_no_adapter_for_is_refused(treadle: Treadle) -> None:
    ran = treadle("enqueue", "shop.welcome", "--url", "sqlit:///x.db")
    assert ran.code == 78
    assert "did you mean" in ran.err


def test_the_app_is_the_one_of_the_library(shop: str) -> None:
    assert App.__module__ == "treadle.app"


def test_a_request_is_kept_behind_a_running_job_and_shown_there(treadle: Treadle, store: Store) -> None:
    first = store.running(unique="one")
    ran = treadle("enqueue", "shop.welcome", "user_id=2", "--unique", "one", "--on-conflict", "keep_last", "--json")
    assert ran.object["outcome"] == "kept"
    assert "takes over when that one's run has ended" in ran.err
    kept = ran.object["id"]
    assert treadle("jobs", "show", first, "--json").object["kept"] == kept
    shown = treadle("jobs", "show", kept, "--json").object
    assert (shown["behind"], shown["args"]) == (first, {"user_id": 2})
    assert f"kept behind job {first}" in treadle("jobs", "explain", kept).out
    assert treadle("jobs", "cancel", kept).code == 0
    assert treadle("jobs", "show", kept).code == 3


def test_a_debounced_request_puts_off_the_one_before_it(treadle: Treadle, store: Store) -> None:
    options = ("--unique", "one", "--debounce", "1h", "--cap", "2h", "--json")
    first = treadle("enqueue", "shop.welcome", "user_id=1", *options).object
    again = treadle("enqueue", "shop.welcome", "user_id=2", *options).object
    assert (first["outcome"], again) == ("inserted", {"id": first["id"], "outcome": "replaced"})
    job = store.run(lambda app: app.jobs.get(first["id"]))
    assert (job.state, job.args) == ("scheduled", {"user_id": 2})


@pytest.mark.parametrize(
    "wrong",
    [
        ["--on-conflict", "merge"],
        ["--cap", "1m"],
        ["--debounce", "5s", "--cap", "1s"],
        ["--debounce", "5s", "--delay", "1m"],
        ["--debounce", "5s", "--on-conflict", "skip"],
    ],
)
def test_coalescing_options_that_contradict_each_other_are_usage_errors(wrong: list[str], treadle: Treadle) -> None:
    ran = treadle("enqueue", "shop.welcome", *wrong)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


def test_an_argument_of_another_type_is_2_and_writes_nothing(treadle: Treadle, shop: str, store: Store) -> None:
    ran = treadle("enqueue", "shop.welcome", "user_id=ada", "-A", shop)
    assert (ran.code, ran.out) == (2, "")
    assert "user_id: does not fit shop.welcome: expected int, got str" in ran.err
    assert store.run(lambda app: app.jobs.find()).jobs == ()
    added = treadle("schedules", "add", "nightly", "0 3 * * *", "shop.welcome", "user_id=ada", "-A", shop)
    assert (added.code, "expected int, got str" in added.err) == (2, True)
    assert not store.run(lambda app: app.schedules.list())


def test_a_number_for_a_text_is_the_text(treadle: Treadle, folder: Path, store: Store) -> None:
    """`zip=10115` is a number as JSON; for `zip: str` it was refused, although nobody types quotes within quotes."""
    (folder / "post.py").write_text(
        "from treadle import App\napp = App()\n@app.task(queue='mail')\ndef send(zip: str, n: int) -> None: ...\n"
    )
    ran = treadle("enqueue", "post.send", "zip=10115", "n=2", "-A", "post:app")
    assert ran.code == 0, ran.err
    (job,) = store.run(lambda app: app.jobs.find()).jobs
    assert job.args == {"zip": "10115", "n": 2}
    wrong = treadle("enqueue", "post.send", "zip=10115", "n=1.5", "-A", "post:app")
    assert (wrong.code, "n: does not fit post.send: expected int, got float" in wrong.err) == (2, True)
