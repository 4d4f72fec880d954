"""Declarations of outside work: what is wrong is said where it is written, in code and in treadle.toml."""

from __future__ import annotations

import datetime as dt
import enum
import tomllib
import uuid
from pathlib import Path
from typing import Any, Literal

import pytest

from treadle import App, ConfigError, PayloadError, Registry
from treadle.tasks.external import tables
from treadle.tasks.external.command import LONGEST_ARGUMENT, Command, Said
from treadle.tasks.external.template import Template

from .bench import at_work, ended

pytestmark = pytest.mark.anyio


def command(function: Any, *argv: str, **options: Any) -> Command:
    return Command(function, "t", argv, options)


def argv(function: Any, *template: str, args: dict[str, Any], **options: Any) -> list[str]:
    return command(function, *template, **options).argv(args)[1:]


class Colour(enum.Enum):
    RED = "red"


def test_a_value_becomes_text_by_its_type() -> None:
    def every(
        s: str,
        i: int,
        f: float,
        b: bool,
        u: uuid.UUID,
        d: dt.date,
        c: Colour,
        o: Literal["x", "y"],
        l: list[int],  # noqa: E741
    ) -> None: ...

    template = [f"{{{name}}}" for name in ("s", "i", "f", "b", "u", "d", "c", "o", "l")]
    stored = {"s": "a b", "i": 3, "f": 1.5, "b": True, "u": str(uuid.UUID(int=7)), "d": "2026-03-04", "c": "red"}
    filled = argv(every, "/bin/x", *template, args=stored | {"o": "x", "l": [1, 2]})
    assert filled == ["a b", "3", "1.5", "true", str(uuid.UUID(int=7)), "2026-03-04", "red", "x", "1", "2"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("i", "3"), ("i", 1.5), ("i", True), ("s", 3), ("s", None), ("s", ["a"]), ("o", "z"), ("s", "a\0b")],
)
def test_a_value_of_another_type_is_refused_and_not_told(name: str, value: Any) -> None:
    def some(s: str = "a", i: int = 1, o: Literal["x", "y"] = "x") -> None: ...

    with pytest.raises(PayloadError, match=name) as caught:
        argv(some, "/bin/x", "{s}", "{i}", "{o}", args={name: value})
    assert "a\0b" not in str(caught.value)


@pytest.mark.parametrize("value", ["-", "--", "-rf", "--output=/etc/passwd", "-1"])
def test_L6_a_leading_dash_is_refused_where_it_would_be_an_option(value: str) -> None:
    def one(x: str) -> None: ...

    for template in (["{x}"], ["{x}.png"], ["-o", "{x}"]):
        with pytest.raises(PayloadError, match="must not begin with a dash"):
            argv(one, "/bin/x", *template, args={"x": value})
    assert argv(one, "/bin/x", "--", "{x}", args={"x": value}) == ["--", value]
    assert argv(one, "/bin/x", "--size={x}", args={"x": value}) == [f"--size={value}"]
    assert argv(one, "/bin/x", "{x}", args={"x": value}, dashes=["x"]) == [value]


def test_L6_a_negative_number_and_a_member_of_a_list_are_options_too() -> None:
    def several(n: int = 1, names: list[str] = []) -> None: ...  # noqa: B006 (a stub)

    for args in ({"n": -1}, {"names": ["a", "-x"]}):
        with pytest.raises(PayloadError, match="dash"):
            argv(several, "/bin/x", "{n}", "{names}", args=args)


def test_L6_an_empty_slot_does_not_open_the_way_for_the_next() -> None:
    def two(a: str, b: str) -> None: ...

    with pytest.raises(PayloadError, match="dash"):
        argv(two, "/bin/x", "{a}{b}", args={"a": "", "b": "-rf"})


def test_an_argument_that_the_system_would_not_take_is_refused_at_once() -> None:
    def one(x: str) -> None: ...

    with pytest.raises(PayloadError, match="too long"):
        argv(one, "/bin/x", "{x}", args={"x": "ü" * (LONGEST_ARGUMENT // 2 + 1)})


def test_a_pattern_is_about_the_whole_value() -> None:
    def one(x: str) -> None: ...

    for value in ("a.png\n", "a.png;", "xa.png", "-a.png"):
        with pytest.raises(PayloadError, match="pattern"):
            argv(one, "/bin/x", "{x}", args={"x": value}, patterns={"x": r"[b-w]*a\.png"})


@pytest.mark.parametrize("value", ["/srv/media/../../etc/passwd", "/srv/media/..", "/srv/media/a/../b"])
def test_a_pattern_that_forgets_two_dots_does_not_let_a_job_out(value: str) -> None:
    """The pattern that docs/commands.md gave for a long time."""

    def one(x: str, y: str = "b") -> None: ...

    told: dict[str, Any] = {"patterns": {"x": r"/srv/media/[\w./-]+"}}
    for template in (["{x}"], ["-o", "{x}"], ["--file={x}"], ["--", "{x}"], ["{x}/{y}"]):
        with pytest.raises(PayloadError, match=r"x: it must not go up by `\.\.`"):
            argv(one, "/bin/x", *template, "{y}", args={"x": value}, **told)
    assert argv(one, "/bin/x", "{x}", "{y}", args={"x": value}, dots=["x"], **told) == [value, "b"]


def test_two_slots_together_do_not_go_up_either() -> None:
    def two(a: str, b: str) -> None: ...

    for template, values in ((["{a}{b}"], (".", ".")), (["x/{a}{b}/y"], (".", ".")), (["{a}./{b}"], (".", "x"))):
        with pytest.raises(PayloadError, match="must not go up"):
            argv(two, "/bin/x", *template, args=dict(zip("ab", values, strict=True)))
    with pytest.raises(PayloadError, match="must not go up"):  # the one is declared, the other is not
        argv(two, "/bin/x", "../{a}", "{b}", args={"a": "../x", "b": ""})
    with pytest.raises(PayloadError, match="must not go up"):
        argv(lambda names: None, "/bin/x", "{names}", args={"names": ["fine", ".."]})
    assert argv(two, "/bin/x", "../{a}", "{b}", args={"a": "x", "b": "v1..v2"}) == ["../x", "v1..v2"]  # as declared


def test_a_file_is_named_within_its_folder() -> None:
    def one(src: str, more: list[str] = []) -> None: ...  # noqa: B006 (a stub)

    told: dict[str, Any] = {"paths": {"src": "/srv/media/", "more": Path("/srv/more")}}
    filled = argv(one, "/bin/x", "{src}", "--in={src}", "{more}", args={"src": "a.png", "more": ["b", "c/d"]}, **told)
    assert filled == ["/srv/media/a.png", "--in=/srv/media/a.png", "/srv/more/b", "/srv/more/c/d"]
    for wrong in ("../x", "/etc/passwd", "a/../../x", "-x", "", ".", "/srv/media2/x"):
        with pytest.raises(PayloadError, match="src"):
            argv(one, "/bin/x", "{src}", "{more}", args={"src": wrong}, **told)
        with pytest.raises(PayloadError, match="more"):
            argv(one, "/bin/x", "{src}", "{more}", args={"src": "a", "more": ["fine", wrong]}, **told)


def test_what_goes_to_stdin_as_json_is_checked_as_well() -> None:
    def one(src: str, size: str, more: list[str] = []) -> None: ...  # noqa: B006 (a stub)

    told = command(one, "/bin/x", stdin="json", paths={"src": "/srv", "more": "/srv"}, patterns={"size": r"\d+"})
    told.check({"src": "a", "size": "1"})
    assert told.whole({"src": "a", "size": "1", "more": ["b"]}) == {"src": "/srv/a", "size": "1", "more": ["/srv/b"]}
    for wrong in (
        {"src": "../a", "size": "1"},
        {"src": "a", "size": "x"},
        {"size": "1"},
        {"src": "a", "size": "1", "more": [".."]},
    ):
        with pytest.raises(PayloadError):
            told.check(wrong)
    text = command(lambda text: None, "/bin/x", stdin="{text}")
    text.check({"text": "../.."})  # what a program reads is no path


def test_a_folder_for_files_must_be_one() -> None:
    for wrong in ("media", "/", "/srv/../etc"):
        with pytest.raises(ConfigError, match="absolute path"):
            command(lambda src: None, "/bin/x", "{src}", paths={"src": wrong})
    with pytest.raises(ConfigError, match="'dst' is not among its parameters"):
        command(lambda src: None, "/bin/x", "{src}", paths={"dst": "/srv"})


def test_a_brace_is_written_twice() -> None:
    def one(x: str) -> None: ...

    assert argv(one, "/bin/x", "{{x}} {x}", args={"x": "1"}) == ["{x} 1"]


@pytest.mark.parametrize("text", ["{", "}", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}", "a\0b"])
def test_a_slot_is_a_name_and_nothing_more(text: str) -> None:
    with pytest.raises(ValueError, match=r"brace|NUL|encountered"):
        Template(text)


@pytest.mark.parametrize(
    ("argv", "options", "words"),
    [
        (["convert", "{x}"], {}, "absolute"),
        (["./convert", "{x}"], {}, "absolute"),
        (["{x}"], {}, "absolute"),
        (["/usr/bin/{x}"], {}, "chosen here"),
        (["/bin/x", "{y}"], {}, "'y' is not among its parameters"),
        (["/bin/x"], {}, "parameter x is used nowhere"),
        (["/bin/x", "{x}"], {"exits": {300: "fail"}}, "300"),
        (["/bin/x", "{x}"], {"exits": {3: "explode"}}, "explode"),
        (["/bin/x", "{x}"], {"exits": {3: "throttle soon"}}, "exits"),
        (["/bin/x", "{x}"], {"exits": {3: "fail 3s"}}, "takes no time"),
        (["/bin/x", "{x}"], {"patterns": {"x": "("}}, "task t"),
        (["/bin/x", "{x}"], {"patterns": {"y": "a"}}, "'y'"),
        (["/bin/x", "{x}"], {"stdin": "{y}"}, "'y'"),
        (["/bin/x", "{x}"], {"memory": "much"}, "memory"),
        (["/bin/x", "{x}"], {"root": "tmp"}, "root"),
        (["/bin/x", "{x}"], {"root": "/tmp", "cwd": "/tmp"}, "not both"),
        (["/bin/x", "{x}"], {"inherit": "PATH"}, "list"),
        (["/bin/x", "{x}"], {"processes": 0}, "processes"),
    ],
)
def test_what_is_wrong_with_a_command_is_said_where_it_is_written(
    argv: list[str], options: dict[str, Any], words: str
) -> None:
    def one(x: str) -> None: ...

    with pytest.raises(ConfigError, match=words):
        command(one, *argv, **options)


def test_a_stub_has_names_for_all_its_arguments_and_no_context() -> None:
    app = App("memory://")

    def context(ctx: Any) -> None: ...
    def many(*files: str) -> None: ...
    async def awaited() -> None: ...

    for stub, words in ((context, "ctx"), (many, "give each a name"), (awaited, "plain def")):
        with pytest.raises(ConfigError, match=words):
            app.command("/bin/x", "{files}")(stub)
    assert app.tasks == {}


async def test_a_declared_task_is_a_task() -> None:
    registry = Registry()

    @registry.command("/bin/echo", "{word}", name="say", aliases=["speak"], queue="voice", retry=2, tags=["loud"])
    def say(word: str) -> str:
        """Say it."""

    assert (say.name, say.queue, say.executor, say.about.description) == ("say", "voice", "command", "Say it.")
    assert say.retry.max_attempts == 2
    with pytest.raises(TypeError, match="enqueue it"):
        say("x")
    app = App("memory://")
    app.include(registry)
    with pytest.raises(TypeError, match="missing"):
        await say.enqueue()  # type: ignore[call-arg]
    async with at_work(app):
        assert await (await say.enqueue("a")).result("10s") == "a"
        assert (await ended(await app.enqueue("speak", {"word": "b"}))).result == "b"
        (task,) = [each for each in await app.catalog.tasks() if each.name == "say"]
        assert (task.executor, task.queue) == ("command", "voice")


# treadle.toml ---------------------------------------------------------------------------------------------------------

TABLE = """
url = "memory://"

[commands.greet]
argv = ["/bin/echo", "{word}", "--times={n}"]
args = { word = "str", n = { type = "int", default = 3 } }
patterns = { word = "[a-z]+" }
exits = { 75 = "throttle 30s" }
queue = "voice"
retry = 2
description = "Greets"
"""


async def test_a_command_may_be_declared_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "treadle.toml").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    app = App()
    greet = app.tasks["greet"]
    assert (greet.queue, greet.executor, greet.about.description) == ("voice", "command", "Greets")
    async with at_work(app):
        assert (await ended(await app.enqueue("greet", {"word": "hello"}))).result == "hello --times=3"
        for args in ({"word": "Hello"}, {"word": "x", "n": "3"}, {}, {"word": "x", "more": 1}):
            with pytest.raises((PayloadError, TypeError)):
                await app.enqueue("greet", args)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("commands = 3", "must be tables"),
        ("commands.x = 3", "commands.x: it must be a table"),
        ("[commands.x]\nargs = {}", "needs argv"),
        ('[commands.x]\nargv = ["sh"]', "task x: its program must be an absolute path"),
        ('[commands.x]\nargv = ["/bin/sh", "{a}"]\nargs = {a = "text"}', "args.a must be one of str"),
        ('[commands.x]\nargv = ["/bin/sh"]\nexit = {}', 'unknown key "exit"; did you mean "exits"'),
    ],
)
def test_what_is_wrong_in_the_file_is_said_at_once(
    table: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "treadle.toml").write_text(table)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        App("memory://")


def test_commands_are_declared_in_the_file_and_never_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_COMMANDS", "x")
    with pytest.raises(ConfigError, match="TREADLE_COMMANDS"):
        App("memory://")


# On uvloop ------------------------------------------------------------------------------------------------------------


def test_children_are_heard_and_ended_on_uvloop_as_well(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")
    script = Path(__file__).parents[2] / "examples/pool_sh/worker.sh"

    async def main() -> None:
        app = App("memory://")
        pool = app.pool("shell", ["/bin/sh", str(script)])

        @pool.task(name="shell.repeat")
        def repeat(word: str, times: int = 2) -> str: ...

        @app.command("/bin/sh", "-c", "cat; trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done", cwd=tmp_path)
        def stay() -> None: ...

        @app.command("/bin/cat", stdin="{text}")
        def cat(text: str) -> str: ...

        async with at_work(app):
            assert await (await repeat.enqueue("ho")).result("10s") == "ho ho "
            assert await (await cat.enqueue("x" * 50_000)).result("10s") == "x" * 50_000
            handle = await stay.enqueue()
            await ended(handle, "running")
            await handle.cancel()
            assert (await ended(handle)).state == "cancelled"

    uvloop.run(main())


def test_the_table_that_the_documentation_shows_keeps_jobs_in_their_folder() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    table = tomllib.loads(page.split("```toml\n")[1].split("```")[0])["commands"]["resize"]
    stub, program, options = tables.read("resize", table)
    own = {name: value for name, value in options.items() if name in Said.__annotations__}
    told = Command(stub, "resize", program, own)
    assert told.argv({"src": "a.png", "dst": "small/a.png"})[1:] == [
        "/srv/media/a.png", "-resize", "100", "/srv/media/small/a.png",
    ]  # fmt: skip
    for wrong in ("../../etc/passwd", "/srv/media/../../etc/passwd", "/etc/passwd", "-write", "a/../../b"):
        for name in ("src", "dst"):
            with pytest.raises(PayloadError, match=name):
                told.check({"src": "a.png", "dst": "b.png"} | {name: wrong})
