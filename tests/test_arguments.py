"""Arguments are checked by the annotations: where a job is enqueued, and again where it is read."""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
import uuid
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, TypeVar

import msgspec
import pytest

from treadle import App, Call, ConfigError, PayloadError, Registry
from treadle.testing.kit import Jobs

if TYPE_CHECKING:
    pass  # type: ignore[import-not-found]

pytestmark = pytest.mark.anyio

T = TypeVar("T")
B = TypeVar("B", bound=int)
UserId = NewType("UserId", int)
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Unknown:
    """A class that msgspec does not know."""


@dataclasses.dataclass
class Order:
    id: int
    tags: list[str] = dataclasses.field(default_factory=list[str])


@dataclasses.dataclass
class Picky:
    text: str

    def __post_init__(self) -> None:
        if self.text == "secret":
            raise ValueError(f"not {self.text}")
        if self.text == "key":
            raise KeyError(self.text)


def takes(kind: Any, **options: Any) -> Any:
    """A task whose one parameter is annotated so."""

    def task(x: Any) -> None: ...

    task.__annotations__["x"] = kind
    return Registry().task(name="shop.task", **options)(task)


GOOD: list[tuple[Any, Any, Any]] = [
    (int, 1, 1),
    (float, 1, 1.0),
    (float, 1.5, 1.5),
    (float | int, 1, 1),
    (bool, True, True),
    (str, "a", "a"),
    (int | None, None, None),
    (UserId, 7, 7),
    (Positive, 1, 1),
    (Literal["a", "b"], "b", "b"),
    (list[int], (1, 2), [1, 2]),
    (Iterable[uuid.UUID], [uuid.UUID(int=1)], [uuid.UUID(int=1)]),
    (dict[str, list[float]], {"a": [1]}, {"a": [1.0]}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (set[int], [1, 2], {1, 2}),
    (bytes, b"\0\xff", b"\0\xff"),
    (dt.timedelta, dt.timedelta(days=1, microseconds=5), dt.timedelta(days=1, microseconds=5)),
    (dt.timedelta, dt.timedelta(days=-1), dt.timedelta(days=-1)),
    (Path, Path("/srv/a b"), Path("/srv/a b")),
    (Path | None, None, None),
    (list[Path], [Path("a")], [Path("a")]),
    (Order, Order(1, ["a"]), Order(1, ["a"])),
    (Order, {"id": 1}, Order(1)),
    (str, uuid.UUID(int=1), str(uuid.UUID(int=1))),  # its JSON is text, and text is wanted
    # What cannot be told passes.
    (Any, {"a": [1]}, {"a": [1]}),
    (object, 1, 1),
    (T, "a", "a"),
    (B, "a", "a"),
    (Unknown, 1, 1),
    (Order | Picky, 1, 1),
    (uuid.UUID | str, "a", "a"),
    ("Absent", 1, 1),
    (Annotated[int, {}], 1, 1),
]


@pytest.mark.parametrize(("kind", "given", "got"), GOOD, ids=lambda each: str(each)[:40])
def test_an_argument_that_fits_comes_back_as_its_annotation_says(kind: Any, given: Any, got: Any) -> None:
    task = takes(kind)
    for _ in range(3):  # annotations are read at the first call, and again if a name was not found
        found = task.decode(task.bind(given).args)
        assert found == ((), {"x": got})
        assert type(found[1]["x"]) is type(got)


BAD: list[tuple[Any, Any, str]] = [
    (int, "abc", "x: does not fit shop.task: expected int, got str"),
    (int, "1", "expected int, got str"),
    (int, 1.5, "expected int, got float"),
    (int, None, "expected int, got null"),
    (int, True, "expected int, got bool"),
    (float, "1", "expected float, got str"),
    (bool, 1, "expected bool, got int"),
    (str, 42, "expected str, got int"),
    (int | None, "secret", "expected int | null, got str"),
    (UserId, "secret", "expected int, got str"),
    (Positive, 0, "expected int >= 1"),
    (Literal["a"], "secret", "not one of the values that it may have"),
    (list[int], [1, "secret"], "x[1]: does not fit shop.task: expected int, got str"),
    (dict[str, int], {"secret": "a"}, "x[...]: does not fit"),
    (Order, Order("secret"), "x.id: does not fit"),  # type: ignore[arg-type]
    (Order, Order(1, ["a", 2]), "x.tags[1]: does not fit"),  # type: ignore[list-item]
    (uuid.UUID, "secret", "invalid UUID"),
    (bytes, "secret!", "invalid base64"),
    (Path, 1, "expected Path, got int"),
    (Picky, {"text": "secret"}, "its type refuses it (ValueError)"),
    (Picky, {"text": "key"}, "its type refuses it (KeyError)"),
]


@pytest.mark.parametrize(("kind", "given", "words"), BAD, ids=lambda each: str(each)[:40])
def test_an_argument_that_does_not_fit_is_refused_where_it_is_given_and_where_it_is_read(
    kind: Any, given: Any, words: str
) -> None:
    """`x: int` took "abc", 1.5 and None; the task found out in the worker, or never."""
    task = takes(kind)
    stored = takes(Any).bind(given).args
    for refused in (lambda: task.bind(given), lambda: task.bind_named({"x": given}), lambda: task.decode(stored)):
        with pytest.raises(PayloadError) as caught:
            refused()
        assert words.lower() in str(caught.value).lower()
        assert caught.value.path.startswith("x")
        assert "secret" not in str(caught.value)


def test_variable_arguments_are_checked_one_by_one() -> None:
    @Registry().task
    def task(*numbers: int, **words: str) -> None: ...

    assert task.decode(task.bind(1, 2, a="b").args) == ((1, 2), {"a": "b"})
    with pytest.raises(PayloadError, match=r"numbers\[1\]: .* expected int"):
        task.bind(1, "2")  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match=r"words\[\.\.\.\]: .* expected str"):
        task.bind(a=1)  # type: ignore[arg-type]


def test_a_parameters_own_default_passes() -> None:
    @Registry().task
    def task(x: int = None, y: list[int] = "none", z: set[int] = (1,)) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert task.decode(task.bind(None, "none", (1,)).args)[1]["y"] == "none"  # type: ignore[arg-type]
    assert task.decode(task.bind(x=None).args) == ((), {"x": None})  # type: ignore[arg-type]
    assert task.decode(task.bind().args) == ((), {})
    with pytest.raises(PayloadError, match="expected int, got str"):
        task.bind("none")  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match="expected array, got str"):
        task.bind(1, "other")  # type: ignore[arg-type]


def test_it_can_be_switched_off_for_a_task_and_for_an_app() -> None:
    library = Registry()

    @library.task(name="loose", check_arguments=False)
    def loose(x: int) -> None: ...

    @library.task(name="plain")
    def plain(x: int) -> None: ...

    @library.task(name="strict", check_arguments=True)
    def strict(x: int) -> None: ...

    assert loose.decode(loose.bind("a").args) == ((), {"x": "a"})  # type: ignore[arg-type]
    with pytest.raises(PayloadError):
        plain.bind("a")  # type: ignore[arg-type]
    App("memory://", check_arguments=False).include(library)  # kept alive by nobody
    app = App("memory://", check_arguments=False)
    app.include(library)
    assert plain.decode(plain.bind("a").args) == ((), {"x": "a"})  # type: ignore[arg-type]
    with pytest.raises(PayloadError):
        strict.bind("a")  # type: ignore[arg-type]

    @app.task(name="day", check_arguments=False)
    def day(x: dt.date) -> None: ...

    assert day.decode(day.bind(dt.date(2026, 1, 2)).args) == ((), {"x": dt.date(2026, 1, 2)})  # still converted


async def test_a_batch_takes_items_that_fit(jobs: Jobs) -> None:
    app = App("memory://")
    jobs.use(app)

    @app.task(batch=10)
    async def index(items: list[int]) -> None: ...

    with pytest.raises(PayloadError, match=r"item: .* expected int, got str"):
        await index.enqueue("abc")  # type: ignore[arg-type]
    with pytest.raises(PayloadError, match=r"item: .* expected int, got str"):
        await app.enqueue_many([index.bind(1), index.bind("abc")])  # type: ignore[arg-type]
    assert not jobs.find()


async def test_what_was_enqueued_without_the_code_is_undecodable(jobs: Jobs) -> None:
    app = App("memory://")
    jobs.use(app)
    ran: list[object] = []

    @app.task(name="count", retry=3)
    async def count(n: int) -> None:
        ran.append(n)

    handle = await app.enqueue(Call("count", '{"n":"secret"}', count.options))
    await jobs.drain(expect_failures=True)
    job = await handle.status()
    assert (job.state, job.attempt, ran) == ("failed", 1, [])
    assert job.error is not None and job.error.kind == "undecodable"
    assert "expected int, got str" in job.error.message and "secret" not in job.error.message


def test_a_schedules_arguments_are_checked_where_it_is_declared() -> None:
    app = App("memory://")
    with pytest.raises(ConfigError, match=r"n: .* expected int, got str"):

        @app.cron("0 3 * * *", args={"n": "three"})
        @app.task
        def count(n: int) -> None: ...


def test_a_class_that_is_defined_after_a_schedule_of_its_task_is_found() -> None:
    """The arguments of a schedule are bound where it is declared, and a class that was not there yet was taken for one
    that cannot be found, for good."""
    app = App("memory://")

    @app.cron("0 3 * * *", args={"late": {"n": 1}})
    @app.task
    def count(late: Late) -> None: ...

    globals()["Late"] = dataclasses.make_dataclass("Late", [("n", int)])
    with pytest.raises(PayloadError, match=r"late\.n: .* expected int"):
        count.bind({"n": "one"})  # type: ignore[arg-type]


if TYPE_CHECKING:

    class Late:
        n: int


# What comes back as text ----------------------------------------------------------------------------------------------


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "treadle.tasks"]


RICH = [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), uuid.UUID(int=1), Decimal("1.5"), b"x", Order(1), Path("a")]


@pytest.mark.parametrize("value", RICH, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("kind", [None, Any, "Absent", "dict"], ids=str)
def test_a_rich_value_for_a_parameter_that_is_not_annotated_is_warned_of_once(
    value: Any, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It came back as text without a word."""
    task = takes(dict if kind == "dict" else kind)
    if kind is None:
        del task.function.__annotations__["x"]
        task._signature = type(task._signature)(task.function, task.name)
    given = {"deep": [value]} if kind == "dict" else value
    task.bind(given)
    task.bind(given)
    (said,) = warnings_of(caplog)
    assert "shop.task" in said and f"x: {type(value).__name__}" in said and "annotate" in said


def test_what_the_annotation_says_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    takes(dt.datetime).bind(dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
    takes(str).bind(uuid.UUID(int=1))
    takes(Order).bind(Order(1))
    takes(Any).bind({"a": [1, "b", None, (1.5,)]})
    assert caplog.records == [] or not warnings_of(caplog)
    assert logging.getLogger("treadle.tasks").isEnabledFor(logging.WARNING)
