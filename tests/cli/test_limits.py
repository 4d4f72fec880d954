"""`treadle limits` and `treadle locks`."""

from __future__ import annotations

import dataclasses

from treadle.operate.limits import LimitView
from treadle.operate.locks import LockView

from .conftest import Store, Treadle


def test_a_limit_is_set_shown_listed_drained_and_removed(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    assert treadle("limits", "list").err == (
        "no limits: declare one with app.limit(…), or make one with `treadle limits set NAME 100/m`\n"
    )
    assert treadle("limits", "set", "slack", "100/m", "--burst", "20").lines == [
        "slack  100/m, burst 20, 20 tokens now"
    ]
    head, row = treadle("limits", "list").lines
    assert head.split() == ["limit", "rate", "burst", "tokens", "leased"]
    assert row.split() == ["slack", "100/m", "20", "20", "0"]
    shown = treadle("limits", "show", "slack", "--json").object
    assert list(shown) == [field.name for field in dataclasses.fields(LimitView)]
    assert (shown["name"], shown["burst"], shown["version"]) == ("slack", 20, 1)
    assert "rate" in treadle("limits", "show", "slack").out
    assert treadle("limits", "drain", "slack", "--json").object["tokens"] < 1
    assert treadle("limits", "set", "slack", "5/s", "--json").object["rate"] == "5/s"
    assert treadle("limits", "list", "--json").object["burst"] == 5
    assert treadle("limits", "remove", "slack").lines == ["slack  removed"]
    assert treadle("limits", "list").lines == []


def test_what_is_wrong_is_said_in_one_line(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    for line, code, says in (
        (["set", "slack", "-5/s"], 2, ""),
        (["set", "slack", "often"], 2, "rate must be above zero"),
        (["set", "queue:mail", "5/s"], 2, "queues' own rates"),
        (["set", "slack", "5/s", "--burst", "0"], 2, "burst"),
        (["show", "slack"], 3, "there is no limit slack"),
        (["drain", "slack"], 3, "there is no limit slack"),
        (["remove", "slack"], 3, "there is no limit slack"),
    ):
        ran = treadle("limits", *line)
        assert ran.code == code, line
        assert says in ran.err, line
    treadle("limits", "set", "slack", "5/s")
    assert 'did you mean "slack"?' in treadle("limits", "show", "slak").err


def test_locks_are_listed_and_freed(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    assert treadle("locks", "list").err == "no locks are held\n"
    store.run(lambda app: app.storage.seize("import", "ann", 600.0))
    head, row = treadle("locks", "list").lines
    assert head.split() == ["lock", "owner", "fence", "left"]
    assert row.split()[:3] == ["import", "ann", "1"]
    assert list(treadle("locks", "list", "--json").object) == [field.name for field in dataclasses.fields(LockView)]
    assert treadle("locks", "free", "import").code == 2  # nobody is here to be asked
    assert treadle("locks", "free", "import", "--yes").lines == ["import  freed"]
    ran = treadle("locks", "free", "import", "--yes", "--json")
    assert (ran.code, "no lock import is held" in ran.err) == (3, True)
