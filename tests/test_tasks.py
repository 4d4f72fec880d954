from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import inspect
import re
import sys
import types
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NewType, TypedDict

import msgspec
import pytest

from treadle import App, ConfigError, Context, PayloadError, PayloadTooLarge, Registry, Retry, Unique
from treadle.core.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_TIMEOUT, NO_TIMEOUT
from treadle.tasks.task import AsyncTask, SyncTask, Task

if TYPE_CHECKING:
    from nowhere import Absent  # type: ignore[import-not-found]

pytestmark = pytest.mark.anyio


class Color(Enum):
    RED = "red"


@dataclasses.dataclass
class User:
    id: int
    born: dt.date


class Order(msgspec.Struct):
    number: uuid.UUID
    total: Decimal


class Shape(TypedDict):
    sides: int


class Model:
    """Looks like pydantic's: known by its methods, as it is not installed here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"name": self.name}

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        if set(value) != {"name"}:
            raise ValueError(f"secret {value}")
        return cls(value["name"])


UserId = NewType("UserId", int)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def round_trip(task: Task[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return task.decode(task.bind(*args, **kwargs).args)


# Declaring -----------------------------------------------------------------------------------------------------------


def test_a_bare_decorator_and_one_with_options_declare_alike(registry: Registry) -> None:
    @registry.task
    async def one() -> None: ...

    @registry.task(queue="mail")
    def two() -> None: ...

    assert isinstance(one, AsyncTask)
    assert isinstance(two, SyncTask)
    assert registry.tasks == {"tests.test_tasks.one": one, "tests.test_tasks.two": two}


def test_a_task_has_what_a_run_needs(registry: Registry) -> None:
    @registry.task(name="mail.send", aliases=["send"], queue="mail", retry=3, timeout="90s", priority=5, tags=["a"])
    async def send(ctx: Context, user_id: int) -> None: ...

    assert (send.name, send.aliases, send.queue) == ("mail.send", ("send",), "mail")
    assert (send.is_async, send.takes_context, send.executor) == (True, True, "async")
    assert (send.retry, send.timeout) == (Retry(max_attempts=3), 90.0)
    assert (send.options.priority, send.options.tags) == (5, ("a",))


def test_unset_options_are_the_built_in_ones(registry: Registry) -> None:
    @registry.task
    def plain() -> None: ...

    assert plain.retry.max_attempts == DEFAULT_MAX_ATTEMPTS
    assert plain.timeout == DEFAULT_TIMEOUT
    assert plain.queue is None
    assert plain.executor == "thread"


def test_a_timeout_of_none_is_no_timeout(registry: Registry) -> None:
    @registry.task(timeout=None)
    def endless() -> None: ...

    assert endless.timeout == NO_TIMEOUT


def test_a_task_looks_like_its_function(registry: Registry) -> None:
    @registry.task
    def documented(a: int) -> int:
        """Says what it does."""
        return a

    assert documented.__doc__ == "Says what it does."
    assert documented.__name__ == "documented"
    assert inspect.unwrap(documented) is documented.function


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "no spaces"}, "is not allowed"),
        ({"queue": "a,b"}, "queue name"),
        ({"aliases": ["-"]}, "is not allowed"),
        ({"timeout": 0}, "longer than zero"),
        ({"timeout": "soon"}, "timeout"),
        ({"timeout": -1}, "negative"),
        ({"priority": 101}, "priority"),
        ({"retry": 0}, "max_attempts"),
        ({"retry": False}, "retry must be"),
        ({"retry": "5"}, "retry must be"),
        ({"tags": "vip"}, "must be a list"),
        ({"unique": 5}, "unique must be"),
        ({"executor": "fibre"}, "this version has async, thread, process"),
        ({"memory": "1GiB"}, 'they need executor="process"'),
        ({"executor": "process", "memory": "much"}, "is not a size"),
        ({"executor": "process", "cpu": "10ms"}, "a second or more"),
        ({"executor": "async"}, "would block the loop"),
    ],
)
def test_a_wrong_option_is_refused_where_the_task_is_declared(
    registry: Registry, options: dict[str, Any], said: str
) -> None:
    def work() -> None: ...

    with pytest.raises(ConfigError, match=said):
        registry.task(**options)(work)
    assert not registry.tasks


def test_an_unknown_option_is_a_type_error(registry: Registry) -> None:
    with pytest.raises(TypeError, match="prioritty"):
        registry.task(prioritty=5)(lambda: None)  # type: ignore[call-overload]


def test_an_async_def_cannot_run_in_a_thread(registry: Registry) -> None:
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="runs on the loop"):
        registry.task(executor="thread")(work)


def test_generators_classes_and_values_are_no_tasks(registry: Registry) -> None:
    def generator() -> Any:
        yield 1

    async def async_generator() -> Any:
        yield 1

    for wrong in (generator, async_generator, User, 5):
        with pytest.raises(ConfigError):
            registry.task(wrong)  # type: ignore[call-overload]


def test_a_lambda_must_be_named(registry: Registry) -> None:
    with pytest.raises(ConfigError, match="give it a name="):
        registry.task(lambda: None)
    assert registry.task(name="nothing")(lambda: None).name == "nothing"


def test_a_partial_must_be_named_too(registry: Registry) -> None:
    with pytest.raises(ConfigError, match="give it a name="):
        registry.task(functools.partial(round, ndigits=1))
    named = registry.task(name="round")(functools.partial(round, ndigits=1))
    assert named(1.26) == 1.3
    with pytest.raises(ConfigError, match="is taken by"):
        registry.task(name="round")(lambda: None)


# Names ---------------------------------------------------------------------------------------------------------------


def test_two_tasks_of_one_name_are_refused(registry: Registry) -> None:
    registry.task(name="a", aliases=["b"])(lambda: None)
    for name, aliases in (("a", []), ("b", []), ("c", ["a"])):
        with pytest.raises(ConfigError, match="is taken by"):
            registry.task(name=name, aliases=aliases)(lambda: None)
    assert list(registry.tasks) == ["a"]


def test_two_tasks_of_one_name_are_told_by_their_lines(registry: Registry) -> None:
    """The error named a module and a function, which are the same for both; now it leads to both declarations."""

    def first() -> None: ...

    def second() -> None: ...

    registry.task(name="twice")(first)
    with pytest.raises(ConfigError) as caught:
        registry.task(name="twice")(second)
    places = [f"{__file__}:{each.__code__.co_firstlineno}" for each in (first, second)]
    assert re.findall(r"[^ (]+\.py:\d+", str(caught.value)) == places


class Shop:
    def send(self, user: int) -> None: ...

    @staticmethod
    def count(user: int) -> int:
        return user

    @classmethod
    def named(cls, user: int) -> str:
        return f"{cls.__name__} {user}"


def test_a_method_is_refused_where_it_is_declared(registry: Registry) -> None:
    """It was taken as a function of `self`, enqueued without one, and failed in the worker."""
    for method in (Shop.send, Shop.named.__func__):  # type: ignore[attr-defined]
        with pytest.raises(ConfigError, match=r"Shop\.\w+ is a method, .* declare a function outside the class"):
            registry.task(method)
    with pytest.raises(ConfigError, match="needs a function"):

        class Mail:
            @registry.task
            @classmethod
            def send(cls) -> None: ...

    with pytest.raises(ConfigError, match=r"Mail2\.send is a method"):

        class Mail2:
            @registry.task(name="mail")
            async def send(self) -> None: ...

    assert registry.tasks == {}
    assert registry.task(Shop.count)(3) == 3  # nothing is missing for a call
    assert registry.task(Shop.named)(3) == "Shop 3"  # bound to its class already
    assert registry.task(name="plain")(lambda self: self)(1) == 1  # a strange name for a parameter, no method


# Words of other systems ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"retries": 3}, r"task send has no option 'retries'; did you mean retry=n \+ 1"),
        ({"bind": True}, "'bind'; did you mean a first parameter `ctx: Context`"),
        ({"autoretry_for": (OSError,)}, r"did you mean retry=Retry\(retry_on="),
        ({"timout": 3}, r"'timout'; did you mean timeout\?"),
        ({"batch": 10, "with_in": 3}, r"'with_in'; did you mean"),
        ({"within": 3}, "did you mean it beside batch="),
    ],
)
def test_an_unknown_option_of_a_task_is_a_hint(registry: Registry, options: dict[str, Any], said: str) -> None:
    def send(items: list[int]) -> None: ...

    with pytest.raises(TypeError, match=said):
        registry.task(**options)(send)
    assert registry.tasks == {}


def test_an_unknown_option_of_a_command_is_a_hint(registry: Registry) -> None:
    def say(word: str) -> None: ...

    with pytest.raises(TypeError, match=r"'max_retries'; did you mean retry="):
        registry.command("/bin/echo", "{word}", max_retries=3)(say)  # type: ignore[call-arg]


async def test_an_unknown_option_of_a_job_is_a_hint() -> None:
    app = App("memory://")
    send = app.task(name="send")(lambda: None)
    loose: Any = send
    with pytest.raises(TypeError, match=r"a job has no option 'countdown'; did you mean delay="):
        loose.using(countdown=5)
    with pytest.raises(TypeError, match=r"a job has no option 'eta'; did you mean at=datetime"):
        await app.enqueue("send", eta=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"a job has no option 'prioriy'; did you mean priority\?"):
        await app.enqueue("elsewhere", prioriy=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"App has no option 'broker'; did you mean App\("):
        App(broker="redis://")  # type: ignore[arg-type]


async def test_an_attribute_of_another_system_is_a_hint() -> None:
    app = App("memory://")
    task: Any = app.task(name="send")(lambda: None)
    for name, said in (("delay", r"enqueue\(…\)"), ("apply_async", r"using\(delay=")):
        with pytest.raises(AttributeError, match=rf"task send has no attribute '{name}'; did you mean .*{said}"):
            getattr(task, name)
        assert not hasattr(task, name)
    loose: Any = app
    with pytest.raises(AttributeError, match=r"this App has no attribute 'send_task'; did you mean app\.enqueue\("):
        _ = loose.send_task
    handle: Any = await task.enqueue()
    with pytest.raises(AttributeError, match=r"a Handle has no attribute 'get'; did you mean await handle\.result"):
        handle.get()
    ctx: Any = Context.without_job("send")
    with pytest.raises(AttributeError, match=r"a Context has no attribute 'retry'; did you mean raise RetryAfter"):
        ctx.retry()
    await app.close()


def test_an_alias_finds_the_task(registry: Registry) -> None:
    task = registry.task(name="new", aliases=["old"])(lambda: None)
    assert registry.find("old") is registry.find("new") is task
    assert registry.find("other") is None


def in_main(monkeypatch: pytest.MonkeyPatch, **attributes: Any) -> Callable[[], None]:
    main = types.ModuleType("__main__")
    for name, value in attributes.items():
        setattr(main, name, value)
    monkeypatch.setitem(sys.modules, "__main__", main)

    def send() -> None: ...

    send.__module__ = "__main__"
    return send


def test_a_script_names_its_tasks_as_its_worker_will(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    send = in_main(monkeypatch, __file__="/srv/shop.py", __spec__=None)
    assert registry.task(send).name == "shop.send"


def test_a_module_run_by_dash_m_keeps_its_name(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = types.SimpleNamespace(name="shop.jobs")
    send = in_main(monkeypatch, __file__="/srv/shop/jobs.py", __spec__=spec)
    assert registry.task(send).name == "shop.jobs.send"


def test_at_a_prompt_a_task_may_be_declared_again(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    send = in_main(monkeypatch, __spec__=None)
    registry.task(send)
    again = registry.task(send)
    assert registry.tasks == {"main.send": again}


# The context ---------------------------------------------------------------------------------------------------------


def test_a_first_parameter_called_ctx_or_annotated_context_is_the_context(registry: Registry) -> None:
    def by_name(ctx, a): ...  # type: ignore[no-untyped-def]
    def by_annotation(context: Context, a: int) -> None: ...
    def with_state(c: Context[int], a: int) -> None: ...
    def unresolvable(c: treadle.Context[Absent], a: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def without(a: int) -> None: ...

    for function in (by_name, by_annotation, with_state, unresolvable):
        task = registry.task(function)
        assert task.takes_context, function
        assert task.bind(1).args == '{"a":1}'
    assert not registry.task(without).takes_context


def test_a_context_anywhere_but_first_is_refused(registry: Registry) -> None:
    def second(a: int, ctx: Context) -> None: ...
    def keyword(*, ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="must be the first parameter"):
        registry.task(second)
    with pytest.raises(ConfigError, match="ordinary parameter"):
        registry.task(keyword)


async def test_a_task_is_still_its_function(registry: Registry) -> None:
    @registry.task
    async def double(a: int) -> int:
        return 2 * a

    @registry.task
    def triple(a: int) -> int:
        return 3 * a

    @registry.task
    async def told(ctx: Context, a: int) -> tuple[int, int, str]:
        return a, ctx.attempt, ctx.task

    assert await double(2) == 4
    assert triple(a=2) == 6
    assert await told(1) == (1, 1, "tests.test_tasks.told")


async def test_a_plain_call_has_no_job_to_enqueue_from(registry: Registry) -> None:
    @registry.task
    async def parent(ctx: Context) -> None:
        await ctx.enqueue(parent.bind())

    with pytest.raises(RuntimeError, match="plain function"):
        await parent()


# Calling -------------------------------------------------------------------------------------------------------------


def test_arguments_are_stored_by_name(registry: Registry) -> None:
    def send(user_id: int, *, subject: str = "hi", copy: bool = False) -> None: ...

    task = registry.task(send)
    assert task.bind(42).args == '{"user_id":42}'
    assert task.bind(user_id=42).args == '{"user_id":42}'
    assert task.bind(42, copy=True).args == '{"copy":true,"user_id":42}'


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing a required argument: 'user_id'"),
        ((1, 2), {}, "too many positional"),
        ((1,), {"user_id": 2}, "multiple values"),
        ((1,), {"userid": 2}, r"has no parameter 'userid'; did you mean user_id\?"),
        ((1,), {"countdown": 2}, r"has no parameter 'countdown'; did you mean task\.using\(delay="),
        ((), {"subject": "x"}, "missing a required argument"),
    ],
)
def test_a_wrong_call_is_a_type_error_in_the_caller(
    registry: Registry, args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    def send(user_id: int, *, subject: str = "hi") -> None: ...

    task = registry.task(name="send")(send)
    with pytest.raises(TypeError, match=f"send:? .*{said}"):
        task.bind(*args, **kwargs)


def test_a_required_keyword_is_asked_for(registry: Registry) -> None:
    def send(a: int = 1, *, b: int) -> None: ...

    task = registry.task(send)
    with pytest.raises(TypeError, match="missing a required"):
        task.bind(5)
    assert round_trip(task, b=2) == ((), {"b": 2})


def test_what_cannot_be_stored_is_refused_at_the_call(registry: Registry) -> None:
    def send(a: Any) -> None: ...

    task = registry.task(send)
    with pytest.raises(PayloadError, match="a"):
        task.bind(object())
    with pytest.raises(PayloadTooLarge):
        task.bind("x" * 2_000_000)


def everything(a: int, /, b: int, c: int = 3, *rest: int, d: int, e: int = 5, **more: int) -> Any:
    return a, b, c, rest, d, e, more


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1, 2), {"d": 4}),
        ((1,), {"b": 2, "d": 4}),
        ((1, 2, 9), {"d": 4, "e": 6}),
        ((1, 2, 9, 10, 11), {"d": 4, "f": 7}),
        ((1, 2), {"d": 4, "a": 7, "rest": 8, "more": 9}),
    ],
)
def test_every_kind_of_parameter_survives_the_way_there_and_back(
    registry: Registry, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    task = registry.task(everything)
    back_args, back_kwargs = round_trip(task, *args, **kwargs)
    assert everything(*back_args, **back_kwargs) == everything(*args, **kwargs)


def test_defaults_are_those_of_the_code_that_runs(registry: Registry) -> None:
    def send(a: int, b: int = 2) -> None: ...

    assert round_trip(registry.task(send), 1) == ((), {"a": 1})


@pytest.mark.parametrize("stored", ["[]", "1", "null", '{"b":1}', '{"a":1,"x":1}', "{}", "not json", '{"a":'])
def test_stored_arguments_that_do_not_fit_are_a_payload_error(registry: Registry, stored: str) -> None:
    def send(a: int) -> None: ...

    with pytest.raises(PayloadError):
        registry.task(send).decode(stored)


@pytest.mark.parametrize("stored", ['{"rest":1}', '{"more":[]}', '{"a":1}'])
def test_stored_lists_and_objects_must_be_such(registry: Registry, stored: str) -> None:
    def send(*rest: int, **more: int) -> None: ...

    with pytest.raises(PayloadError):
        registry.task(send).decode(stored)


def test_arguments_by_name_are_checked_like_a_call(registry: Registry) -> None:
    def send(a: int, *rest: int) -> None: ...

    task = registry.task(send)
    assert task.bind_named({"a": 1, "rest": [2, 3]}).args == '{"a":1,"rest":[2,3]}'
    for wrong in ({}, {"a": 1, "b": 2}, {"a": 1, "rest": 2}):
        with pytest.raises(TypeError):
            task.bind_named(wrong)


# Types ---------------------------------------------------------------------------------------------------------------


def typed(
    user: User,
    order: Order,
    model: Model,
    at: dt.datetime,
    color: Color,
    many: list[User],
    maybe: uuid.UUID | None,
    pair: tuple[int, Color],
    table: Mapping[str, Decimal],
) -> None: ...


def test_arguments_come_back_as_their_annotations_say(registry: Registry) -> None:
    number = uuid.uuid4()
    arguments: dict[str, Any] = {
        "user": User(1, dt.date(1815, 12, 10)),
        "order": Order(number, Decimal("9.90")),
        "model": Model("ada"),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678, dt.UTC),
        "color": Color.RED,
        "many": [User(2, dt.date(2000, 1, 1))],
        "maybe": number,
        "pair": (1, Color.RED),
        "table": {"a": Decimal("1.5")},
    }
    assert round_trip(registry.task(typed), **arguments) == ((), arguments)
    assert round_trip(registry.task(name="none")(typed), **{**arguments, "maybe": None})[1]["maybe"] is None


def test_variable_arguments_are_converted_one_by_one(registry: Registry) -> None:
    def send(*days: dt.date, **colors: Color) -> None: ...

    day = dt.date(2026, 1, 2)
    assert round_trip(registry.task(send), day, day, x=Color.RED) == ((day, day), {"x": Color.RED})


def test_a_class_defined_after_its_task_is_found(registry: Registry) -> None:
    def send(late: Late) -> None: ...

    assert round_trip(registry.task(send), Late(1)) == ((), {"late": Late(1)})


@dataclasses.dataclass
class Late:
    n: int


def plain(
    a: int, b: list[dict[str, float]], c: Any, d: Literal["x"], e: UserId, f: Shape, g: str | None, h: object, i=1
) -> None:  # type: ignore[no-untyped-def]
    ...


def test_plain_json_passes_through_unchanged(registry: Registry) -> None:
    task = registry.task(check_arguments=False)(plain)
    odd: dict[str, Any] = dict.fromkeys("abcdefghi", "not what is annotated")
    assert round_trip(task, **odd) == ((), odd)


def test_annotations_nobody_understands_are_left_alone(registry: Registry) -> None:
    def send(a: Absent, b: User | Order, c: types.ModuleType, d: dt.date) -> None: ...

    day = dt.date(2026, 1, 2)
    back = round_trip(registry.task(send), 1, 2, 3, day)
    assert back == ((), {"a": 1, "b": 2, "c": 3, "d": day})


@pytest.mark.parametrize(
    ("stored", "where"),
    [
        ('{"user":{"id":"x","born":"2026-01-02"}}', "user.id: .* expected int, got str"),
        ('{"user":{"id":1}}', "user: .*missing required field born"),
        ('{"color":"secret"}', "color: .* not one of the values"),
        ('{"model":{"secret":1}}', "model: .* not a Model"),
        ('{"day":"secret"}', "day: does not fit .*: invalid"),
    ],
)
def test_a_value_that_does_not_fit_its_annotation_names_the_place_and_not_the_value(
    registry: Registry, stored: str, where: str
) -> None:
    def send(
        user: User | None = None, color: Color = Color.RED, model: Model | None = None, day: dt.date | None = None
    ) -> None: ...

    with pytest.raises(PayloadError, match=where) as caught:
        registry.task(send).decode(stored)
    assert "secret" not in str(caught.value)


def test_a_result_comes_back_as_the_return_annotation_says(registry: Registry) -> None:
    def make() -> User: ...

    task = registry.task(make)
    assert task.decode_result('{"id":1,"born":"1815-12-10"}') == User(1, dt.date(1815, 12, 10))
    assert task.decode_result(None) is None


# Options of a call ---------------------------------------------------------------------------------------------------


def test_using_changes_a_copy(registry: Registry) -> None:
    @registry.task(queue="mail", tags=["task"])
    async def send(a: int) -> str: ...  # type: ignore[empty-body]

    other = send.using(delay="5m", priority=10, unique="k", tags=["vip"], reason="test", max_attempts=2, meta={"t": 1})
    options = other.bind(1).options
    assert type(other) is AsyncTask
    assert (options.delay, options.priority, options.reason, options.queue) == (300.0, 10, "test", "mail")
    assert (options.unique, options.tags, options.meta) == (Unique(key="k"), ("task", "vip"), '{"t":1}')
    assert (options.max_attempts, options.pinned) == (2, True)
    assert send.options.delay == 0.0
    assert not send.options.pinned


def test_unique_may_be_a_key_a_rule_or_yes_or_no(registry: Registry) -> None:
    task = registry.task(name="t", unique=True)(lambda: None)
    assert task.options.unique == Unique()
    assert task.using(unique=False).options.unique is None
    assert task.using(unique=Unique(period="1h")).options.unique == Unique(period="1h")
    assert task.using().options.unique == Unique()


def test_a_timeout_of_the_call_is_marked_as_such(registry: Registry) -> None:
    task = registry.task(name="t", timeout=5)(lambda: None)
    assert (task.options.timeout, task.options.pinned) == (5.0, False)
    assert (task.using(timeout=None).options.timeout, task.using(timeout=None).options.pinned) == (NO_TIMEOUT, True)


def test_the_later_of_delay_and_at_holds(registry: Registry) -> None:
    task = registry.task(name="t")(lambda: None)
    at = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    later = task.using(delay=5).using(at=at).options
    assert (later.delay, later.run_at) == (0.0, at.timestamp())
    again = task.using(at=at).using(delay=5).options
    assert (again.delay, again.run_at) == (5.0, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delay": -1}, "negative"),
        ({"delay": float("nan")}, "delay"),
        ({"at": dt.datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"delay": 1, "at": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}, "exclude each other"),
        ({"queue": "a b"}, "queue name"),
        ({"priority": 101}, "priority"),
        ({"tags": [""]}, "tag"),
        ({"tags": [str(n) for n in range(21)]}, "too many"),
        ({"reason": "x" * 2000}, "reason"),
        ({"timeout": 0}, "longer than zero"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"meta": {"treadle:parent": 1}}, "Treadle's own"),
        ({"id": "1"}, "UUID"),
        ({"unique": ""}, "unique key"),
    ],
)
def test_a_wrong_option_of_a_call_is_refused_at_the_call(
    registry: Registry, options: dict[str, Any], said: str
) -> None:
    task = registry.task(name="t")(lambda: None)
    with pytest.raises(ValueError, match=said):
        task.using(**options)


def test_too_much_meta_is_a_payload_error(registry: Registry) -> None:
    with pytest.raises(PayloadTooLarge):
        registry.task(name="t")(lambda: None).using(meta={"a": "x" * 20_000})


# Registries and apps -------------------------------------------------------------------------------------------------


def test_an_app_takes_over_the_tasks_of_a_registry_also_the_later_ones(registry: Registry) -> None:
    app, inner = App("memory://"), Registry()
    inner.task(name="one")(lambda: None)
    registry.include(inner)
    app.include(registry)
    inner.task(name="two")(lambda: None)
    registry.task(name="three", aliases=["four"])(lambda: None)
    assert sorted(app.tasks) == ["one", "three", "two"]
    assert app.find("four") is app.tasks["three"]


def test_including_a_taken_name_is_refused_and_changes_nothing(registry: Registry) -> None:
    app = App("memory://")
    app.task(name="a")(lambda: None)
    registry.task(name="b")(lambda: None)
    registry.task(name="a")(lambda: None)
    with pytest.raises(ConfigError, match="is taken by"):
        app.include(registry)
    assert list(app.tasks) == ["a"]


def test_a_name_taken_in_an_app_cannot_be_declared_later_in_its_registry(registry: Registry) -> None:
    app = App("memory://")
    app.include(registry)
    app.task(name="a")(lambda: None)
    with pytest.raises(ConfigError, match="is taken by"):
        registry.task(name="a")(lambda: None)
    assert not registry.tasks


def test_including_twice_is_harmless_and_including_itself_is_not(registry: Registry) -> None:
    app = App("memory://")
    registry.task(name="a")(lambda: None)
    app.include(registry)
    app.include(registry)
    assert list(app.tasks) == ["a"]
    with pytest.raises(ConfigError, match="include itself"):
        registry.include(registry)
    with pytest.raises(ConfigError, match="registries, not apps"):
        app.include(App("memory://"))


async def test_a_task_of_a_registry_is_enqueued_where_its_app_is(registry: Registry) -> None:
    task = registry.task(name="a")(lambda: None)
    with pytest.raises(ConfigError, match="no app includes"):
        await task.enqueue()
    app = App("memory://")
    app.include(registry)
    handle = await task.enqueue()
    assert (await app.jobs.get(handle.id)).task == "a"
    await app.close()


async def test_of_several_apps_the_open_one_is_meant_and_else_none(registry: Registry) -> None:
    task = registry.task(name="a")(lambda: None)
    one, two = App("memory://"), App("memory://")
    one.include(registry)
    two.include(registry)
    with pytest.raises(ConfigError, match="several apps"):
        await task.enqueue()
    async with two:
        handle = await task.enqueue()
        assert (await handle.status()).id == handle.id
        async with one:
            with pytest.raises(ConfigError, match="several apps"):
                await task.enqueue()
            assert (await one.enqueue(task.bind())).outcome == "inserted"
