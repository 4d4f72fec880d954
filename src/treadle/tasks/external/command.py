"""Command: a program with an argument template. A job fills its slots, and chooses nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast

from ...core import jail
from ...core.duration import Duration, seconds
from ...core.errors import ConfigError, PayloadError
from ...core.outcome import Cancel, Fail, RetryAfter, Signal, Snooze, Throttle
from ...core.size import Size, size
from . import Stub, TaskOptions
from .programs import Surroundings, check_absolute, surroundings
from .template import Template, text_of

EXECUTOR: Final = "command"
LONGEST_ARGUMENT: Final = 128 * 1024 - 1  # Linux has no longer ones
DEFAULT_OUTPUT: Final = 64 * 1024
CANNOT_RUN: Final = 126
NOT_FOUND: Final = 127
_LAST_CODE: Final = 255

Word = Literal["done", "retry", "fail", "throttle", "snooze", "cancel"]
WORDS: Final[tuple[Word, ...]] = ("done", "retry", "fail", "throttle", "snooze", "cancel")
_USUAL: Final[Mapping[int, Word]] = {0: "done", CANNOT_RUN: "fail", NOT_FOUND: "fail"}
Exits: TypeAlias = Mapping[int, str]


class Said(TypedDict, total=False):
    """What a command may say besides its arguments."""

    stdin: str | None  # "json": the arguments; "{text}": one of them; None: nothing
    exits: Exits
    patterns: Mapping[str, str]
    paths: Mapping[str, str | Path]  # a parameter that names a file, and the folder that the file must be in
    dashes: Iterable[str]
    dots: Iterable[str]
    output: Size
    root: str | Path | None
    cwd: str | Path | None
    env: Mapping[str, str]
    inherit: Iterable[str]
    user: str | None
    cpu: Duration | None
    memory: Size | None
    file_size: Size | None
    processes: int | None
    open_files: int | None


class CommandOptions(TaskOptions, Said, total=False):
    """All that `@app.command` takes by name."""


class Command:
    """A declared command. What is wrong with it is a ConfigError, where it is written."""

    executor = EXECUTOR

    def __init__(
        self, function: Callable[..., Any], task: str, argv: Sequence[str], options: Mapping[str, Any]
    ) -> None:
        self.task = task
        self.stub = Stub(function, task)
        try:
            self._read(argv, **options)
        except (ValueError, re.error) as error:
            raise ConfigError(f"task {task}: {error}") from None

    def _read(
        self,
        argv: Sequence[str],
        *,
        stdin: str | None = None,
        exits: Exits | None = None,
        patterns: Mapping[str, str] | None = None,
        paths: Mapping[str, str | Path] | None = None,
        dashes: Iterable[str] = (),
        dots: Iterable[str] = (),
        output: Size = DEFAULT_OUTPUT,
        root: str | Path | None = None,
        **around: Any,
    ) -> None:
        if isinstance(argv, str) or not argv:
            raise ValueError('it needs a program and its arguments, for example "/usr/bin/convert", "{src}"')
        self.program = check_absolute(argv[0])
        self.arguments = tuple(Template(each) for each in argv[1:])
        self.stdin = None if stdin is None or stdin == "json" else Template(stdin)
        self.stdin_json = stdin == "json"
        self.exits = _exits(exits or {})
        self.patterns = {name: re.compile(pattern) for name, pattern in (patterns or {}).items()}
        self.paths = {name: jail.check_jail(str(folder)) for name, folder in (paths or {}).items()}
        self.dashes = frozenset([dashes] if isinstance(dashes, str) else dashes)
        self.dots = frozenset([dots] if isinstance(dots, str) else dots)
        self.output = size(output, "output")
        self.around: Surroundings = surroundings(**around)
        if root is not None and not Path(root).is_absolute():
            raise ValueError(f"root must be an absolute path, not {str(root)!r}")
        if root is not None and self.around.cwd is not None:
            raise ValueError("give a root, where each run has a folder of its own, or a cwd, not both")
        self.root = None if root is None else str(root)
        self._check_names()

    def _check_names(self) -> None:
        templates = [*self.arguments, *([] if self.stdin is None else [self.stdin])]
        used = {name for template in templates for name in template.slots}
        for name in sorted(used | self.patterns.keys() | self.paths.keys() | self.dashes | self.dots):
            if name not in self.stub.names:
                raise ValueError(f"{name!r} is not among its parameters ({', '.join(self.stub.names) or 'none'})")
        for name in self.stub.names:
            if name not in used and not self.stdin_json:
                raise ValueError(f'its parameter {name} is used nowhere: give it a slot, or stdin="json"')

    @property
    def is_text(self) -> bool:
        """Its result is what it printed, even if that looks like JSON: the stub says `-> str`."""
        return self.stub.types.get("return") is str

    def check(self, arguments: Mapping[str, Any]) -> None:
        self.argv(arguments)
        if self.stdin is not None:
            self.input(arguments)
        if self.stdin_json:
            self.whole(arguments)

    def argv(self, arguments: Mapping[str, Any]) -> list[str]:
        """The program and its arguments. PayloadError says which value may not be there."""
        values = {name: self.stub.convert(name, value) for name, value in arguments.items()}
        values = self.stub.complete(values)
        argv, literal = [self.program], False
        for template in self.arguments:
            filled = self._filled(template, values)
            for text in filled:
                if text.startswith("-") and template.leading not in self.dashes | {None} and not literal:
                    why = "it would be read as an option: it must not begin with a dash"
                    raise PayloadError(why, template.leading or "")
                if self._climbs(template, text):
                    raise PayloadError("it must not go up by `..`", template.slots[0])
                if len(text.encode("utf-8", "surrogatepass")) > LONGEST_ARGUMENT:
                    raise PayloadError("too long for an argument of a program", (template.slots or ("",))[0])
            argv += filled
            literal = literal or template.text == "--"
        return argv

    def input(self, arguments: Mapping[str, Any]) -> str | None:
        """What it reads, if it is a slot's."""
        if self.stdin is None:
            return None
        values = {name: self.stub.convert(name, arguments[name]) for name in self.stdin.slots if name in arguments}
        return self.stdin.fill(self.stub.complete(values), self._text)

    def whole(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments, for stdin="json": checked by the patterns, and with files by their absolute paths."""
        values = self.stub.complete(arguments)
        for name in self.patterns:
            self._texts(name, arguments)
        for name in self.paths:
            texts = self._texts(name, arguments)
            values[name] = texts if isinstance(values[name], list | tuple) else texts[0]
        return values

    def files(self, arguments: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        """What a job names files by: each parameter, the folder that it must stay in, and the path."""
        return [(name, self.paths[name], path) for name in self.paths for path in self._texts(name, arguments)]

    def _texts(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """What one parameter says: several texts if it is a list."""
        values = self.stub.complete({name: self.stub.convert(name, arguments[name])} if name in arguments else {})
        if name not in values:
            raise PayloadError("it is missing", name)
        value = values[name]
        several = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else (value,)
        return [self._text(name, each) for each in several]

    def outcome(self, code: int) -> Signal | Literal["done", "retry"]:
        """What an exit code means. "retry" is an ordinary failed attempt."""
        word, after = self.exits.get(code, (_USUAL.get(code, "retry"), None))
        match word:
            case "done":
                return "done"
            case "throttle":
                return Throttle(after)
            case "snooze":
                return Snooze(60.0 if after is None else after)
            case "fail":
                return Fail(f"exit code {code}")
            case "cancel":
                return Cancel(f"exit code {code}")
            case _:
                return "retry" if after is None else RetryAfter(after, f"exit code {code}")

    def _filled(self, template: Template, values: Mapping[str, Any]) -> list[str]:
        if template.whole is not None and isinstance(values[template.whole], list | tuple):
            several = cast("Sequence[Any]", values[template.whole])
            return [self._text(template.whole, value) for value in several]
        return [template.fill(values, self._text)]

    def _text(self, name: str, value: Any) -> str:
        found = text_of(name, value)
        if name in self.patterns and not self.patterns[name].fullmatch(found):
            raise PayloadError(f"it does not fit the pattern {self.patterns[name].pattern}", name)
        if name in self.paths:
            try:
                return jail.within(self.paths[name], found)
            except ValueError as error:
                raise PayloadError(str(error), name) from None
        return found

    def _climbs(self, template: Template, text: str) -> bool:
        """Whether a job has made a path of an argument that goes up by `..`. A pattern for paths that forgets it
        (`/srv/[\\w./-]+`) would let a job out of the folder that it seems to name."""
        if not template.slots or self.dots.intersection(template.slots):
            return False
        declared = template.fill(dict.fromkeys(template.slots, "x"), lambda name, value: str(value))
        return jail.ups(text) > jail.ups(declared)


def _exits(exits: Mapping[Any, Any]) -> dict[int, tuple[Word, float | None]]:
    found: dict[int, tuple[Word, float | None]] = {}
    for key, said in exits.items():
        code = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() else key  # TOML has text for keys
        if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code <= _LAST_CODE:
            raise ValueError(f"exits: {key!r} is not an exit code from 0 to {_LAST_CODE}")
        word, _, after = str(said).partition(" ")
        if word not in WORDS:
            raise ValueError(f'exits: {said!r} for {code} must be one of {", ".join(WORDS)}, as in "throttle 30s"')
        if after and word not in ("retry", "throttle", "snooze"):
            raise ValueError(f"exits: {word} for {code} takes no time")
        found[code] = (word, seconds(after, "exits") if after else None)
    return found
