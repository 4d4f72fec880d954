"""What is known of tasks and queues, and where pods disagree."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from treadle.core import catalog
from treadle.core.catalog import STALE_AFTER, Entry
from treadle.core.pod import Descriptor, Pod, PodCard

NOW = 10_000_000.0


def a_pod(label: str, *, live: bool = True, **fields: Any) -> Pod:
    given = {"queues": {"mail": 1}, "tasks": ("send",), **fields}
    card = PodCard(id=label, label=label, host="h", pid=1, version="1", lease=30.0, **given)
    return Pod(card=card, started_at=0.0, beat_at=0.0, lease_left=10.0 if live else 0.0)


def an_entry(name: str = "send", seen_at: float = NOW, kind: catalog.Kind = "task", **said: Any) -> Entry:
    return Entry(kind=kind, name=name, descriptor=Descriptor(**said), seen_at=seen_at)


def test_keys() -> None:
    assert catalog.parts(catalog.key("queue", "mail")) == ("queue", "mail")
    assert catalog.parts("task a:b") == ("task", "a:b")
    for wrong in ("", "task", "task ", "other x"):
        assert catalog.parts(wrong) is None


def test_a_descriptor_is_checked() -> None:
    said = catalog.checked(description="Sends mail", owner="ops", docs="https://wiki/mail", tags=["a", "a"])
    assert said == Descriptor(description="Sends mail", owner="ops", docs="https://wiki/mail", tags=("a",))
    for wrong in ({"owner": "a\nb"}, {"description": "x" * 501}, {"docs": "wiki/mail"}, {"docs": "javascript:1"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            catalog.checked(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="owner"):
        catalog.checked(owner=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tags"):
        catalog.checked(tags="ab")


@pytest.mark.parametrize(
    ("doc", "line"), [(None, ""), ("", ""), ("  \n One. \n Two.", "One."), ("x" * 600, "x" * 500), ("a\x07b", "")]
)
def test_the_first_line_of_a_docstring(doc: str | None, line: str) -> None:
    assert catalog.first_line(doc) == line


def test_a_task_that_live_pods_know() -> None:
    said = Descriptor(owner="ops", queue="mail")
    pods = [a_pod("one", about={"task send": said}), a_pod("two"), a_pod("dead", live=False)]
    (known,) = catalog.survey("task", [an_entry(owner="ops", queue="mail")], pods, NOW)
    assert (known.name, known.pods, known.drift, known.stale) == ("send", ("one", "two"), (), False)
    assert known.descriptor == said
    (queue,) = catalog.survey("queue", [], pods, NOW)
    assert (queue.name, queue.pods, queue.descriptor, queue.seen_at) == ("mail", ("one", "two"), Descriptor(), None)


def test_pods_that_disagree_are_drift() -> None:
    pods = [
        a_pod("one", about={"task send": Descriptor(owner="ops", tags=("a", "b"))}),
        a_pod("two", about={"task send": Descriptor(owner="dev"), "nonsense": Descriptor()}),
        a_pod("three", about={"task send": Descriptor(owner="dev")}),
    ]
    (known,) = catalog.survey("task", [an_entry(owner="dev")], pods, NOW)
    assert known.drift == (
        'owner: "ops" in one; "dev" in two, three, the storage',
        'tags: "a, b" in one; nothing in two, three, the storage',
    )
    (known,) = catalog.survey("task", [], pods, NOW)
    assert known.descriptor.owner == "dev"


def test_a_storage_that_says_otherwise_is_drift() -> None:
    pods = [a_pod("one", about={"task send": Descriptor(docs="https://a")})]
    (known,) = catalog.survey("task", [an_entry(docs="https://b")], pods, NOW)
    assert known.drift == ('docs: "https://a" in one; "https://b" in the storage',)


@pytest.mark.parametrize(("age", "stale"), [(STALE_AFTER - 1, False), (STALE_AFTER + 1, True)])
def test_what_nobody_has_seen_for_a_month_is_stale(age: float, stale: bool) -> None:
    (known,) = catalog.survey("task", [an_entry(seen_at=NOW - age)], [], NOW)
    assert (known.stale, known.pods, known.drift) == (stale, (), ())


def test_a_pod_that_died_today_was_seen_today_however_long_ago_it_registered() -> None:
    dead = msgspec.structs.replace(a_pod("one", about={"task send": Descriptor()}), lease_left=-60.0, beat_at=NOW - 90)
    (known,) = catalog.survey("task", [an_entry(seen_at=0.0)], [dead], NOW)
    assert (known.stale, known.pods, known.seen_at) == (False, (), NOW - 90)


def test_what_a_live_pod_has_is_not_stale_however_long_ago_it_registered() -> None:
    (known,) = catalog.survey("task", [an_entry(seen_at=0.0)], [a_pod("one")], NOW)
    assert not known.stale
    aliased = a_pod("two", tasks=(), about={"task send": Descriptor()})
    (known,) = catalog.survey("task", [an_entry(seen_at=0.0)], [aliased], NOW)
    assert not known.stale


def test_kinds_are_told_apart() -> None:
    entries = [an_entry("mail", kind="queue"), an_entry("send"), an_entry("add")]
    assert [known.name for known in catalog.survey("task", entries, [], NOW)] == ["add", "send"]
    assert [known.name for known in catalog.survey("queue", entries, [], NOW)] == ["mail"]
