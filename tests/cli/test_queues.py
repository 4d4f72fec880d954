from __future__ import annotations

import dataclasses
import getpass
import time
from pathlib import Path

from treadle.core.job import QueueChange
from treadle.core.view import QueueView

from .conftest import Store, Treadle


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
    assert treadle("queues", "list").lines[1].endswith(told)
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
