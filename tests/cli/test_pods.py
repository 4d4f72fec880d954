from __future__ import annotations

import dataclasses

from treadle.core.view import PodView

from .conftest import Store, Treadle


def test_list_has_the_live_and_the_gone(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1")
    head, row = treadle("pods", "list").lines
    assert head.split()[:3] == ["pod", "state", "leader"]
    assert row.split()[:2] == ["pod1", "live"]
    assert "mail:5" in row
    found = treadle("pods", "list", "--json").object
    assert list(found) == [field.name for field in dataclasses.fields(PodView)]
    assert found["queues"] == {"mail": 5}


def test_no_pods_is_said_beside_the_data(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("pods", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "treadle worker" in ran.err
