from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

from treadle.app import App
from treadle.core.balance import Share
from treadle.core.pod import PodStats
from treadle.core.view import PodView

from .conftest import Store, Treadle


def test_list_has_the_live_and_the_gone(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1")
    head, row = treadle("pods", "list").lines
    assert head.split()[:3] == ["pod", "state", "leader"]
    assert row.split()[:2] == ["pod1", "live"]
    found = treadle("pods", "list", "--json").object
    assert list(found) == [field.name for field in dataclasses.fields(PodView)]
    assert found["queues"] == {"mail": 5}


def test_list_shows_what_a_pod_says_of_itself(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1")
    stats = PodStats(running={"mail": 2}, rss_bytes=50 << 20, loop_lag=0.25)
    store.run(lambda app: app.storage.beat("pod1", 30.0, (), stats=stats))
    (row,) = treadle("pods", "list").lines[1:]
    assert "mail 2/5" in row
    assert "50 MiB" in row
    assert "250ms" in row
    store.run(lambda app: app.storage.save_shares([Share("mail", "pod1", 3)]))
    assert "mail 2/3" in treadle("pods", "list").lines[1]


def test_list_says_beside_the_data_what_is_wrong(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1")
    store.enqueue(queue="lonely")
    ran = treadle("pods", "list")
    assert "queue lonely has 1 job ready, and no live pod serves it; treadle worker -q lonely" in ran.err
    assert "lonely" in treadle("queues", "list").err
    assert treadle("queues", "list", "--json").err == ""


def test_no_pods_is_said_beside_the_data(treadle: Treadle, store: Store) -> None:
    store.run(_open)
    ran = treadle("pods", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "treadle worker" in ran.err


async def _open(app: App) -> None:
    await app.storage.pods()


def test_show_has_every_field_of_one_pod(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1")
    ran = treadle("pods", "show", "pod1")
    assert ran.lines[0].split() == ["id", "pod1"]
    assert treadle("pods", "show", "pod1", "--json").object["label"] == "pod1"


def test_a_pod_that_is_not_there_is_3_and_one_line(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1")
    for verb in ("show", "quiet", "resume", "stop", "stacks"):
        ran = treadle("pods", verb, "nobody")
        assert (ran.code, ran.err) == (3, "treadle: there is no pod nobody; `treadle pods list` has them\n")


def test_a_name_that_may_be_several_pods_names_none(treadle: Treadle, store: Store) -> None:
    store.running(pod="feed-1")
    store.running(pod="feed-2")
    ran = treadle("pods", "quiet", "feed")
    assert ran.code == 3
    assert "feed may be any of 2 pods: name one by its id" in ran.err
    assert treadle("pods", "quiet", "feed-2").code == 0


def test_orders_are_kept_for_the_pod_and_shown(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1")
    assert treadle("pods", "quiet", "pod1").lines == ["pod1  asked to be quiet"]
    assert treadle("pods", "list").lines[1].split()[1] == "quiet"
    assert treadle("pods", "resume", "pod1", "--json").object["wish"] == "serve"
    assert treadle("pods", "stop", "pod1").lines == ["pod1  asked to stop"]
    found = treadle("pods", "show", "pod1", "--json").object
    assert (found["state"], found["wish"]) == ("stopping", "stop")
    assert found["wish_by"]


def test_a_pod_that_is_gone_takes_no_orders(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1", lease=-1.0)
    ran = treadle("pods", "stop", "pod1")
    assert ran.code == 3
    assert "pod pod1 is l" in ran.err  # lapsed, or proven dead already


def test_in_production_an_order_needs_the_name_of_the_place(treadle: Treadle, store: Store, folder: Any) -> None:
    store.running(pod="pod1")
    (folder / "treadle.toml").write_text('production = true\nenv = "live"\n')
    assert treadle("pods", "stop", "pod1", "--yes").code == 2
    assert treadle("pods", "stop", "pod1", "--yes", "--env", "live").code == 0


def test_stacks_are_waited_for(treadle: Treadle, store: Store) -> None:
    store.running(pod="pod1")
    ran = treadle("pods", "stacks", "pod1", "--timeout", "200ms")
    assert ran.code == 1
    assert "pod pod1 has not shown its stacks within 200ms" in ran.err

    stop = threading.Event()
    answering = threading.Thread(target=_answer, args=(store, stop))
    answering.start()
    try:
        ran = treadle("pods", "stacks", "pod1", "--timeout", "5s")
    finally:
        stop.set()
        answering.join()
    assert ran.lines == ["thread one", "  here"]


def _answer(store: Store, stop: threading.Event) -> None:
    async def beat(app: App) -> None:
        while not stop.is_set():
            await app.storage.beat("pod1", 30.0, (), stacks="thread one\n  here\n")
            await asyncio.sleep(0.05)

    work: Callable[[App], Any] = beat
    store.run(work)


def test_sweep_rescues_what_dead_pods_left_and_says_so(treadle: Treadle, store: Store, shop: str) -> None:
    assert treadle("pods", "sweep", "--json").code == 5  # there is no database yet
    id = store.running("mail", pod="dead")
    store.run(lambda app: app.storage.sign_off("dead"))  # it left without giving its job back
    assert store.state(id) == "running"
    ran = treadle("pods", "sweep", "-A", shop)
    assert (ran.code, ran.lines) == (0, ["dead  1 job left behind", "mail  1 rescued"])
    assert "1 job of dead pods" in ran.err
    assert store.state(id) == "ready"
    (line,) = [line for line in treadle("audit", "--json").objects if line["act"] == "pods.sweep"]
    assert line["detail"] == "1 jobs rescued, 0 waits ended"
    assert treadle("pods", "sweep", "--json").object == {"rescued": 0, "waits": 0, "pods": {}, "queues": {}}
