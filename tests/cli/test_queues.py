from __future__ import annotations

import dataclasses
import getpass
import time
from pathlib import Path

from treadle.core import settings
from treadle.core.job import QueueChange
from treadle.core.pod import Descriptor, PodCard
from treadle.core.view import QueueView

from .conftest import Store, Treadle


def a_card(label: str, about: dict[str, Descriptor]) -> PodCard:
    return PodCard(
        id=label,
        label=label,
        host="h",
        pid=1,
        version="1",
        queues={"mail": 1},
        tasks=("send",),
        lease=60.0,
        about=about,
    )


def test_list_has_counts_and_settings(treadle: Treadle, store: Store) -> None:
    store.failed(queue="mail")
    store.enqueue(queue="mail")
    store.enqueue(queue="slow")
    ran = treadle("queues", "list")
    head, *rows = ran.lines
    assert head.split()[:3] == ["queue", "ready", "oldest"]
    assert [row.split()[0] for row in rows] == ["mail", "slow"]
    mail, _ = treadle("queues", "list", "--json").objects
    assert list(mail) == [field.name for field in dataclasses.fields(QueueView)]
    assert (mail["ready"], mail["failed"], mail["paused"]) == (1, 1, False)


def test_show_one(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    assert "max_workers" in treadle("queues", "show", "mail").out
    assert treadle("queues", "show", "mail", "--json").object["name"] == "mail"


def test_an_unknown_queue_is_3_with_a_suggestion_and_is_not_made(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    for line in (["show"], ["pause"], ["resume"], ["set", "--max-workers", "3"]):
        ran = treadle("queues", *line, "mial")
        assert ran.code == 3, line
        assert 'did you mean "mail"?' in ran.err
    assert len(treadle("queues", "list", "--json").lines) == 1


def test_pause_keeps_who_why_and_until_when(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    ran = treadle("queues", "pause", "mail", "--reason", "provider down", "--until", "2100-01-01T00:00Z")
    assert ran.lines == ["mail  paused until 2100-01-01 00:00:00Z"]
    mail = treadle("queues", "show", "mail", "--json").object
    assert (mail["paused"], mail["pause_reason"], mail["paused_by"]) == (True, "provider down", getpass.getuser())
    told = f"paused until 2100-01-01 00:00:00Z by {getpass.getuser()}: provider down"
    assert treadle("queues", "list").lines[1].endswith(f"{told}; not served")
    assert treadle("queues", "resume", "mail").lines == ["mail  resumed"]
    mail = treadle("queues", "show", "mail", "--json").object
    assert (mail["paused"], mail["pause_reason"]) == (False, None)


def test_set_limits_and_frees(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    assert treadle("queues", "set", "mail", "--max-workers", "3", "--json").object["max_workers"] == 3
    assert treadle("queues", "set", "mail", "--max-workers", "none").lines == ["mail  max_workers no limit"]
    assert treadle("queues", "show", "mail", "--json").object["max_workers"] is None
    assert treadle("queues", "set", "mail", "--max-workers", "few").code == 2
    assert treadle("queues", "set", "mail").code == 2


def test_set_ends_a_cool_down(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    hot = QueueChange(name="mail", cool_until=time.time() + 3600)
    assert [each.accepted for each in store.run(lambda app: app.storage.apply([hot]))] == [True]
    assert "cooling until" in treadle("queues", "list").lines[1]
    assert treadle("queues", "set", "mail", "--warm").lines == ["mail  warm"]
    assert treadle("queues", "show", "mail", "--json").object["cool_until"] is None
    both = treadle("queues", "set", "mail", "--warm", "--max-workers", "2")
    assert both.lines == ["mail  max_workers 2, warm"]
    assert treadle("queues", "show", "mail", "--json").object["max_workers"] == 2


def test_in_production_a_change_needs_yes_and_the_name(treadle: Treadle, store: Store, folder: Path) -> None:
    store.enqueue(queue="mail")
    (folder / "treadle.toml").write_text('env = "live"\nproduction = true')
    assert treadle("queues", "pause", "mail").code == 2
    assert treadle("queues", "pause", "mail", "--yes").code == 2
    assert treadle("queues", "pause", "mail", "--yes", "--env", "live").code == 0


EVERY = {
    "max_workers": "7",
    "rate": "90/m",
    "burst": "20",
    "aging": "1m",
    "timeout": "10m",
    "max_attempts": "5",
    "backoff": "linear",
    "backoff_base": "30s",
    "backoff_cap": "2h",
    "cool_base": "10s",
    "cool_cap": "1h",
    "keep_succeeded": "1d",
    "keep_failed": "forever",
    "keep_cancelled": "0s",
}


def test_every_setting_has_a_flag_and_is_shown_as_it_was_written(treadle: Treadle, store: Store) -> None:
    assert list(EVERY) == [setting.name for setting in settings.SETTINGS]
    store.enqueue(queue="mail")
    flags = [word for name, value in EVERY.items() for word in (f"--{name.replace('_', '-')}", value)]
    ran = treadle("queues", "set", "mail", *flags)
    assert ran.lines == ["mail  " + ", ".join(f"{name} {value}" for name, value in EVERY.items())]
    shown = dict(line.split(maxsplit=1) for line in treadle("queues", "show", "mail").lines)
    assert {name: shown[name] for name in EVERY} == EVERY
    mail = treadle("queues", "show", "mail", "--json").object
    assert (mail["rate"], mail["timeout"], mail["keep_failed"], mail["backoff"]) == (1.5, 600.0, "forever", "linear")
    back = [word for name in EVERY for word in (f"--{name.replace('_', '-')}", "default")]
    assert treadle("queues", "set", "mail", *back).code == 0
    mail = treadle("queues", "show", "mail", "--json").object
    assert {mail[name] for name in EVERY} == {None}
    shown = dict(line.split(maxsplit=1) for line in treadle("queues", "show", "mail").lines)
    assert (shown["rate"], shown["keep_failed"]) == ("no limit (built in)", "30d (built in)")


def test_a_setting_that_makes_no_sense_is_one_clear_line(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    for flag, value, told in (
        ("--rate", "-1", "rate must be above zero"),
        ("--rate", "fast", "rate must be above zero"),
        ("--cool-base", "2d", "cool_base must be from 1s to 24h"),
        ("--keep-failed", "none", 'say "forever"'),
        ("--backoff", "custom", "one of exponential, fixed, linear"),
        ("--max-workers", "-1", "whole number"),
    ):
        ran = treadle("queues", "set", "mail", flag, value)
        assert (ran.code, told in ran.err) == (2, True), ran.err
    ran = treadle("queues", "set", "mail", "--backoff-base", "2h", "--backoff-cap", "1h")
    assert ran.code == 2
    assert "backoff_base must not be longer than backoff_cap" in ran.err
    assert treadle("queues", "set", "mail", "--cool", "1m", "--warm").code == 2
    assert treadle("queues", "show", "mail", "--json").object["version"] == 0


def test_scale(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    assert treadle("queues", "scale", "mail", "10").lines == ["mail  max_workers 10"]
    assert treadle("queues", "scale", "mail", "0", "--json").object["max_workers"] == 0
    assert treadle("queues", "scale", "mail", "none").lines == ["mail  max_workers no limit"]
    assert treadle("queues", "scale", "mail", "few").code == 2
    assert treadle("queues", "scale", "mial", "3").code == 3


def test_a_queue_can_be_cooled_by_hand(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    assert treadle("queues", "set", "mail", "--cool", "1h").lines == ["mail  cool 1h"]
    assert "cooling until" in treadle("queues", "show", "mail").out


def test_show_says_who_closed_it_and_who_owns_it(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    said = {"queue mail": Descriptor(owner="ops", docs="https://wiki/mail", tags=("m",), description="Mail")}
    other = {"queue mail": Descriptor(owner="dev")}
    store.run(lambda app: app.storage.register(a_card("one", said)))
    store.run(lambda app: app.storage.register(a_card("two", other)))
    treadle("queues", "pause", "mail", "--reason", "provider down")
    shown = treadle("queues", "show", "mail").out
    assert f"paused by {getpass.getuser()}: provider down" in shown
    assert "paused_at" in shown
    assert "drift" in shown
    assert '"ops" in one; "dev" in two, the storage' in shown


def test_prune_all_reports_by_queue_and_state(treadle: Treadle, store: Store) -> None:
    for queue in ("mail", "bulk"):
        store.succeeded(queue)
        store.failed(queue)
        treadle("queues", "set", queue, "--keep-succeeded", "0s")
    treadle("queues", "set", "mail", "--keep-failed", "0s")
    assert treadle("queues", "prune").code == 2
    assert treadle("queues", "prune", "mail", "--all").code == 2
    assert treadle("queues", "prune", "--all", "--json").objects == [
        {"queue": "bulk", "removed": 1, "succeeded": 1, "cancelled": 0, "failed": 0},
        {"queue": "mail", "removed": 2, "succeeded": 1, "cancelled": 0, "failed": 1},
    ]
    lines = treadle("audit", "--json").objects
    pruned = [(line["subject"], line["detail"]) for line in lines if line["act"] == "queues.prune"]
    assert sorted(pruned) == [("bulk", "1 removed"), ("mail", "2 removed")]
    ran = treadle("queues", "prune", "--all")
    assert [line.split() for line in ran.lines] == [
        ["queue", "succeeded", "cancelled", "failed"],
        ["bulk", "0", "0", "0"],
        ["mail", "0", "0", "0"],
    ]
    assert "0 jobs removed" in ran.err
