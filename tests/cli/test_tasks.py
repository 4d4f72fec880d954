from __future__ import annotations

import dataclasses

from treadle.core.pod import Descriptor
from treadle.core.view import TaskView

from .conftest import Store, Treadle
from .test_queues import a_card

SENDS = Descriptor(description="Sends mail", owner="ops", docs="https://wiki/send", tags=("m",), queue="mail")


def test_nothing_known_yet(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("tasks", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "a worker tells" in ran.err


def test_list_and_show(treadle: Treadle, store: Store) -> None:
    store.run(lambda app: app.storage.register(a_card("one", {"task send": SENDS})))
    head, row = treadle("tasks", "list").lines
    assert head.split() == ["task", "queue", "executor", "pods", "owner", "note", "description"]
    assert row.split() == ["send", "mail", "1", "ops", "Sends", "mail"]
    (task,) = treadle("tasks", "list", "--json").objects
    assert list(task) == [field.name for field in dataclasses.fields(TaskView)]
    assert treadle("tasks", "show", "send", "--json").object == task
    shown = dict(line.split(maxsplit=1) for line in treadle("tasks", "show", "send").lines)
    assert (shown["queue"], shown["docs"], shown["pods"], shown["tags"]) == ("mail", "https://wiki/send", "one", "m")


def test_drift_and_tasks_that_nobody_knows_are_marked(treadle: Treadle, store: Store) -> None:
    store.run(lambda app: app.storage.register(a_card("one", {"task send": SENDS, "task old": SENDS})))
    store.run(lambda app: app.storage.register(a_card("two", {"task send": Descriptor(queue="mail")})))
    notes = {row.split()[0]: row for row in treadle("tasks", "list").lines[1:]}
    assert "drift" in notes["send"].split()
    assert "owner" in treadle("tasks", "show", "send").out
    store.run(lambda app: app.storage.sign_off("one"))
    assert "no worker" in {row.split()[0]: row for row in treadle("tasks", "list").lines[1:]}["old"]
    assert "no live worker knows it" in treadle("tasks", "show", "old").out


def test_an_unknown_task_is_3_with_a_suggestion(treadle: Treadle, store: Store) -> None:
    store.run(lambda app: app.storage.register(a_card("one", {"task send": SENDS})))
    ran = treadle("tasks", "show", "sent")
    assert ran.code == 3
    assert 'did you mean "send"?' in ran.err
    assert "`treadle tasks list` has them" in treadle("tasks", "show", "xyzzy").err
