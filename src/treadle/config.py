"""Settings: flag, then `TREADLE_*`, then `treadle.toml` (or `[tool.treadle]` in pyproject.toml), then the default.

`SETTINGS` is the whole list: what is not in it is an error with a suggestion, what is in it is read, and the page of
the documentation is made from it. All errors are found together, at start, and each names the setting and the place it
came from. `Config.sources` keeps that place for every value, so that `treadle doctor` can say it.

An environment variable that is set but empty counts as not set: that is what `TREADLE_QUEUES=` in a compose file means.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from .core import names, settings
from .core.deploy import check_version
from .core.duration import seconds, words
from .core.errors import ConfigError
from .core.size import size
from .core.size import words as size_words

DEFAULT_URL: Final = "sqlite:///treadle.db"
FILE: Final = "treadle.toml"
COMMANDS: Final = "commands"
PREFIX: Final = "TREADLE_"
PARENTS: Final = 4
LOOPBACK: Final = "127.0.0.1"
LAST_PORT: Final = 65_535
SWITCHES: Final = ("worker", "services", "cron", "web")

_DEFAULT: Final = "default"
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NO_LABEL: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clockwork of a pod, in seconds. Tests and short-lived hosts shorten it; the proportions matter more than
    the numbers: beat < lease / 2, and a dead pod's jobs are claimable after lease + 1.5 · scan at the latest."""

    lease: float = 30.0  # how long a pod is believed without a beat
    beat: float = 10.0
    scan: float = 5.0  # how often somebody looks for abandoned jobs
    neighbours: float = 1.0  # how often a pod looks for dead pods on its own host, where the storage can prove death
    poll: float = 1.0  # how long an idle pod rests when nothing wakes it
    grace: float = 25.0  # a graceful stop, as a whole
    cancel_grace: float = 5.0  # what a cancelled run may still take
    overdue: float = 30.0  # how long after its deadline the Rescuer ends a run that its own pod did not
    leader_ttl: float = 15.0
    leader_every: float = 5.0
    balance: float = 5.0  # how often the leader shares out the queues' max_workers
    prune: float = 60.0  # how often the leader removes ended jobs, and records, that are over their age
    roll_up: float = 60.0  # how often the leader folds the history, and forgets what of it is too old
    call: float = 10.0  # deadline of one storage call
    loop_lag: float = 1.0  # above it the blocking stack is logged, at most once a minute
    # With no deadline of its own to go by, a loop blocked for so long makes the Heart stop renewing.
    loop_limit: float = 3600.0
    start_jitter: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much at once."""

    slots: int = 50  # per queue, where the queue list names no number
    batch: int = 512  # jobs a turn
    threads: int | None = None  # for `def` tasks; None: as many as the pod has slots, up to `max_threads`
    max_threads: int = 100
    pod_slots: int | None = None  # over all queues of a pod; None: each queue has its own, and no more is said
    children: int | None = None  # child processes; None: as many as there are processors
    child_calls: int = 1000  # after so many calls a child process gives way to a new one
    child_memory: int | None = None  # and when it has grown to so many bytes
    suspects: int = 64  # jobs that have lost a worker, at once, each alone in a child process
    abandoned: int = 10  # runs that ignore their cancel; with so many, a worker starts anew


class DeclaredQueue(Struct, frozen=True):
    """A queue that a worker is told to serve. `max_workers` and `live` seed the queue's row, and never overwrite it."""

    name: str
    slots: int | None = None  # None: `Limits.slots`
    max_workers: int | None = None
    min: int = 0  # of the pod's `pod_slots`: kept free for this queue
    weight: int = 1  # and its part of the rest
    pod_rate: float | None = None  # claims a second, of each pod alone; the queue's own `rate` is the cluster's
    live: Mapping[str, Any] = {}  # its other live settings, as the row keeps them

    def seed(self) -> dict[str, Any]:
        """What a new row starts with."""
        own = {} if self.max_workers is None else {"max_workers": self.max_workers}
        return {**self.live, **own}


class Config(Struct, frozen=True, kw_only=True):
    """Every setting, checked. Made by `load`; the defaults are those of `SETTINGS`."""

    app: str | None = None
    url: str = DEFAULT_URL
    queues: tuple[DeclaredQueue, ...] = ()
    timing: Timing = Timing()
    limits: Limits = Limits()
    synchronous: str = "full"
    ballast: bool = True
    loop: str = "auto"
    schema: str = "treadle"
    listen_url: str | None = None
    auto_migrate: bool = False
    env: str | None = None
    color: str | None = None
    production: bool = False
    no_lead: bool = False
    health: str | None = None
    log_level: str = "info"
    log_format: str = "text"
    log_jobs: bool = False
    job_logs: str = "info"
    worker_prefix: str | None = None
    worker_version: str | None = None
    worker_id: str | None = None
    answer_secret: str | None = None
    web_host: str = LOOPBACK
    web_port: int = 8181
    web_token_file: str | None = None
    web_basic: str | None = None
    web_password: str | None = None
    web_password_file: str | None = None
    web_read_only: bool = False
    web_hosts: tuple[str, ...] = ()
    web_redact: tuple[str, ...] = ()
    disable: frozenset[str] = frozenset()
    commands: Mapping[str, Any] = {}  # tables of the file; see `outside.tables`
    file: Path | None = None
    sources: Mapping[str, str] = {}

    def value(self, name: str) -> Any:
        """The value of one setting, wherever it lives."""
        for part in (self.timing, self.limits, self):
            if hasattr(part, name):
                return getattr(part, name)
        raise KeyError(name)

    def is_set(self, name: str) -> bool:
        """Whether somebody chose the value, rather than the default."""
        return self.sources.get(name, _DEFAULT) != _DEFAULT


def load(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Config:
    """Read all settings. A flag that is None was not given. ConfigError holds one line for each error."""
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    errors: list[str] = []
    file, from_file = _read_file(cwd, errors)
    # Programs are declared where code is: in a file, and never by a flag or a variable.
    commands: object = next((each.raw for each in from_file if each.name == COMMANDS), dict[str, Any]())
    from_file = [each for each in from_file if each.name != COMMANDS]
    given = _given(from_file + _read_environ(environ, errors) + _read_flags(flags or {}, errors), errors)
    if "url" in given:
        _resolve_url(given, environ, file, cwd, errors)
    values = {name: value for name, (value, _) in given.items()}
    sources = {each.name: given[each.name][1] if each.name in given else _DEFAULT for each in SETTINGS}
    config = Config(
        timing=Timing(**_part(Timing, values)),
        limits=Limits(**_part(Limits, values)),
        commands=cast("Mapping[str, Any]", commands) if isinstance(commands, Mapping) else {},
        file=file,
        sources=sources,
        **_part(Config, values),
    )
    if not isinstance(commands, Mapping):
        errors.append(f"{file}: commands must be tables, for example [commands.resize]")
    if config.timing.beat * 2 > config.timing.lease:
        told = " and ".join(f"{name} ({sources[name]})" for name in ("beat", "lease"))
        errors.append(f"{told}: beat must be at most half of lease, or one late beat loses every job of the pod")
    kept = sum(queue.min for queue in config.queues)
    if config.limits.pod_slots is not None and kept > config.limits.pod_slots:
        place = sources["queues"]
        errors.append(f"queues ({place}): min is {kept} together, and pod_slots is {config.limits.pod_slots}")
    if errors:
        raise ConfigError("\n".join(errors))
    return config


def worker_label(config: Config, pod_id: str) -> str:
    """How a pod is called towards people. A label is not an identity: two pods may share one."""
    if config.worker_prefix is None:
        return pod_id
    own = config.worker_id if config.worker_id is not None else pod_id[:4]
    # A version may have what a label may not: `1.4+build 7`.
    version = _NO_LABEL.sub("-", config.worker_version or "")
    return "-".join(part for part in (config.worker_prefix, "worker", version, own) if part)


def masked(url: str) -> str:
    """The URL as it may be shown: without its password.

    >>> masked("postgresql://ann:secret@db/shop")
    'postgresql://ann:***@db/shop'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(a URL that does not parse)"
    netloc = parts.netloc
    if "@" in netloc:
        login, _, host = netloc.rpartition("@")
        user, colon, _ = login.partition(":")
        netloc = f"{user}:***@{host}" if colon else netloc
    query = re.sub(r"(?i)((?:^|&)[^=&]*(?:password|secret|token)[^=&]*=)[^&]*", r"\1***", parts.query)
    # By hand: what urlunsplit makes of an empty authority, as in `sqlite:///x`, is another thing in every Python.
    whole = parts.path + (query and f"?{query}") + (parts.fragment and f"#{parts.fragment}")
    return f"{parts.scheme}://{netloc}{whole}" if "://" in url else whole


# ---------------------------------------------------------------------------------------------------------------------
# The settings


class Setting(Struct, frozen=True):
    """One setting: how it is read, and what the documentation says of it. `read` raises ValueError."""

    name: str
    meaning: str
    read: Callable[[object], object]
    default: object = None

    @property
    def env(self) -> str:
        return PREFIX + self.name.upper()


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    return value.strip()


def label(value: object) -> str:
    """A part of a pod's label, or all of it. It stands in log lines and tables."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value)
    if not _LABEL.fullmatch(text):
        raise ValueError("must be letters, digits, _ . or -, at most 64")
    return text


def version(value: object) -> str:
    """The version of the user's code, as pods tell it."""
    return check_version(str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value))


def _colour(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"#[0-9A-Fa-f]{6}", text):
        raise ValueError("must be written as #rrggbb")
    return text


def _url(value: object) -> str:
    text = _text(value)
    if not _VARIABLE.fullmatch(text) and "://" not in text:
        raise ValueError("must be a URL, for example sqlite:///treadle.db")
    return text


def address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[host]:port`, or a port alone, which means loopback."""
    host, _, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit() and int(port) <= LAST_PORT) or (":" in host and f"[{host}]" not in text):
        raise ValueError("must be a port, or host:port, for example 127.0.0.1:9464")
    return host or LOOPBACK, int(port)


def _address(value: object) -> str:
    host, port = address(str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _identifier(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", text):
        raise ValueError("must be lower-case letters, digits and _, at most 63, the first no digit")
    return text


def _duration(value: object) -> float:
    found = _seconds(value)
    if found <= 0:
        raise ValueError('must be longer than nothing, for example 10 or "10s"')
    return found


def _seconds(value: object) -> float:
    return seconds(cast(Any, value), "it")


def _port(value: object) -> int:
    found = _count_or_zero(int(value) if isinstance(value, str) and value.strip() == "0" else value)
    if found > LAST_PORT:
        raise ValueError(f"must be a port, at most {LAST_PORT}")
    return found


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_members(value))


def _count(value: object) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be a whole number, 1 or more")
    return value


def _size(value: object) -> int:
    return size(cast(Any, value), "it")


def _count_or_zero(value: object) -> int:
    return 0 if value == 0 and not isinstance(value, bool) else _count(value)


def _yes_or_no(value: object) -> bool:
    if isinstance(value, bool):
        return value
    said = value.strip().lower() if isinstance(value, str) else None
    if said in {"true", "yes", "on", "1"}:
        return True
    if said in {"false", "no", "off", "0"}:
        return False
    raise ValueError("must be true or false")


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        said = _text(value).lower()
        if said not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}{_did_you_mean(said, choices)}")
        return said

    return read


def _switches(value: object) -> frozenset[str]:
    return frozenset(_one_of(*SWITCHES)(each) for each in _members(value))


def _members(value: object) -> list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_text(each) for each in cast(Sequence[object], value)]
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    raise ValueError("must be a list, or text with commas")


def _queues(value: object) -> tuple[DeclaredQueue, ...]:
    if isinstance(value, Mapping):
        return tuple(_queue_from_table(name, own) for name, own in cast(Mapping[str, object], value).items())
    members = ",".join(_members(value))
    return tuple(DeclaredQueue(name, slots) for name, slots in names.parse_queues(members).items()) if members else ()


def _queue_from_table(name: str, value: object) -> DeclaredQueue:
    names.check_name("queue", name)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table, for example queues.{name} = {{ slots = 10 }}")
    read: dict[str, Callable[[object], float]] = {
        "slots": _count,
        "max_workers": _count_or_zero,
        "min": _count_or_zero,
        "weight": _count,
        "pod_rate": settings.rate,
    }
    own: dict[str, Any] = {}
    live: dict[str, object] = {}
    for key, raw in cast(Mapping[str, object], value).items():
        if key in settings.BY_NAME and key not in read:
            live[key] = raw
            continue
        if key not in read:
            raise ValueError(f'{name} has the unknown key "{key}"{_did_you_mean(key, (*read, *settings.BY_NAME))}')
        try:
            own[key] = read[key](raw)
        except ValueError as error:
            raise ValueError(f"{name}.{key} {error}") from None
    try:
        return DeclaredQueue(name, **own, live=settings.read(live))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = names.suggest(word, known)
    return f'; did you mean "{near}"?' if near else ""


_TIMING: Final = {
    "lease": "how long a pod is believed without a beat; a dead pod's jobs are claimable after it",
    "beat": "how often a pod renews its lease; at most half of it",
    "scan": "how often somebody looks for abandoned jobs",
    "neighbours": "how often a pod looks for dead pods on its own host",
    "poll": "how long an idle pod rests when nothing wakes it",
    "grace": "how long a graceful stop may take as a whole; then what still runs is given back",
    "cancel_grace": "what a cancelled run may still take",
    "overdue": "how long after its deadline a run is ended from outside, if its own pod did not",
    "leader_ttl": "how long a leader is believed",
    "leader_every": "how often a leader renews, and the others ask",
    "balance": "how often the leader shares out the queues' max_workers over the pods",
    "prune": "how often the leader removes ended jobs, audit lines and other records that are over their age",
    "roll_up": "how often the leader folds minutes of history into hours and days, and forgets what is too old",
    "call": "deadline of one storage call",
    "loop_lag": "a loop blocked for longer is logged, with the stack that blocks it",
    "loop_limit": "a loop blocked for so long makes the pod end, with exit code 70",
    "start_jitter": "a pod that is not alone waits a random part of it before its first claim: no fleet starts as one",
}
_MAY_BE_ZERO: Final = {"grace", "cancel_grace", "overdue", "start_jitter"}

SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("app", "where the App is, as module:attribute; else `app` in app.py, jobs.py, tasks.py or main.py", _text),
    Setting("url", "the storage; in the file, `$NAME` takes it from that environment variable", _url, DEFAULT_URL),
    Setting("queues", "what a worker serves: `mail:10,default`, or in the file one table for each queue", _queues, ()),
    Setting("slots", "places per queue in one pod, where the queue list names no number", _count, Limits().slots),
    Setting("pod_slots", "places over all queues of one pod, shared by the queues' `min` and `weight`", _count),
    Setting("batch", "how many jobs one turn takes at most", _count, Limits().batch),
    Setting("threads", "how many `def` tasks run at once; unset: as many as the slots, up to `max_threads`", _count),
    Setting("max_threads", "where `threads` is unset: how many there are at most", _count, Limits().max_threads),
    Setting("children", 'child processes for tasks with `executor="process"`; unset: one for each processor', _count),
    Setting("child_calls", "after so many calls a child process gives way to a new one", _count, Limits().child_calls),
    Setting("child_memory", "a child process that has grown to so much gives way to a new one: `1GiB`", _size),
    Setting(
        "suspects",
        "how many jobs that have lost a worker run at once, each alone in a child process; more than 8 only where a "
        "quarter of the memory is free",
        _count,
        Limits().suspects,
    ),
    Setting(
        "abandoned",
        "so many runs that ignore their cancel make a worker stop and, under `--processes` or a supervisor, start anew",
        _count,
        Limits().abandoned,
    ),
    *(
        Setting(name, meaning, _seconds if name in _MAY_BE_ZERO else _duration, getattr(Timing(), name))
        for name, meaning in _TIMING.items()
    ),
    Setting(
        "loop",
        "event loop of a worker: `auto` takes uvloop where it is installed (`treadle[uvloop]`), else Python's own",
        _one_of("auto", "asyncio", "uvloop"),
        "auto",
    ),
    Setting(
        "synchronous",
        "SQLite: `full` syncs at every commit. `normal` is faster, and power loss (not a crash of the process) may "
        "take the last commits with it: enqueues that had returned, finishes that run again. Never a corrupted file",
        _one_of("full", "normal"),
        "full",
    ),
    Setting(
        "ballast",
        "SQLite: if true, a worker keeps 8 MiB in reserve beside the database (`app.db-treadle/ballast`), given up "
        "when the disk is full, so that finished jobs can still be written",
        _yes_or_no,
        True,
    ),
    Setting("schema", "PostgreSQL: the schema that holds Treadle's tables", _identifier, "treadle"),
    Setting("listen_url", "PostgreSQL: a direct way to the server for wake-ups, where `url` leads to a pooler", _url),
    Setting(
        "auto_migrate",
        "PostgreSQL: bring an older schema forward at open, as `treadle db migrate` does",
        _yes_or_no,
        False,
    ),
    Setting("env", "what this place is called, in every confirmation", _text),
    Setting("color", "the colour of its name, for example `#b5651d`", _colour),
    Setting("production", "if true, `--yes` also needs `--env NAME`", _yes_or_no, False),
    Setting("no_lead", "if true, this worker never takes the leader's duties", _yes_or_no, False),
    Setting(
        "health",
        "where a worker answers /healthz, /readyz and /metrics: `127.0.0.1:9464`, or a port alone for loopback",
        _address,
    ),
    Setting("log_level", "debug, info, warning or error", _one_of("debug", "info", "warning", "error"), "info"),
    Setting("log_format", "text or json", _one_of("text", "json"), "text"),
    Setting("log_jobs", "if true, a worker logs every start and success at info, not at debug", _yes_or_no, False),
    Setting(
        "job_logs",
        "what is kept of the lines that a task logs: debug, info, warning, error and above, or off",
        _one_of("debug", "info", "warning", "error", "off"),
        "info",
    ),
    Setting("worker_prefix", "the label of a pod becomes `{prefix}-worker-{version}-{id}`; unset: the pod's id", label),
    Setting(
        "worker_version",
        "the version of your own code, for example `2026.11.3` or a commit: in that label, in the list of pods, and "
        "Failures counts new causes from the first worker that has it; unset: the App's, or none",
        version,
    ),
    Setting("worker_id", "the id in that label; unset: 4 digits of the pod's id", label),
    Setting(
        "answer_secret",
        "with it, an outside answer over HTTP must be signed: HMAC-SHA256 of token, line feed and body in "
        "`X-Treadle-Signature`",
        _text,
    ),
    Setting("web_host", "where `treadle web` listens; any address but loopback needs a token", _text, LOOPBACK),
    Setting("web_port", "its port; in the file, all these may stand in a table: `web.port`", _port, 8181),
    Setting("web_token_file", "the tokens that it asks for, made by `treadle tokens`; unset: none on loopback", _text),
    Setting("web_basic", "instead of tokens, a name and a password are asked for: `ann`, or `ann:viewer`", _text),
    Setting("web_password", "that password, of 12 characters or more; better in the environment than in a file", _text),
    Setting("web_password_file", "or a file that holds it, and that only its owner can read", _text),
    Setting("web_read_only", "if true, the dashboard shows and changes nothing", _yes_or_no, False),
    Setting("web_hosts", "host names that the dashboard answers to, beside loopback", _texts, ()),
    Setting("web_redact", "keys whose values the dashboard never shows, beside the usual: `iban`, `*.pin`", _texts, ()),
    Setting("disable", f"kill switches, any of {', '.join(SWITCHES)}", _switches, frozenset[str]()),
)
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


def shown(name: str, value: object) -> str:
    """A setting's value as people read it, with no password in it."""
    match value:
        case None:
            return "unset"
        case bool():
            return str(value).lower()
        case float():
            return words(value)
        case frozenset():
            return ",".join(sorted(cast(frozenset[str], value))) or "none"
        case tuple():
            members = cast(tuple[DeclaredQueue | str, ...], value)
            return ",".join(each if isinstance(each, str) else _queue_text(each) for each in members) or "none"
        case int() if name.endswith("memory"):
            return size_words(value)
        case _ if name.endswith(("secret", "password")):
            return "***"
        case _:
            return masked(str(value)) if name.endswith("url") else str(value)


def _queue_text(queue: DeclaredQueue) -> str:
    return queue.name if queue.slots is None else f"{queue.name}:{queue.slots}"


# ---------------------------------------------------------------------------------------------------------------------
# Where they come from


class _Given(Struct, frozen=True):
    """A value as somebody wrote it, and where."""

    name: str
    raw: object
    source: str


def _read_flags(flags: Mapping[str, object], errors: list[str]) -> list[_Given]:
    found = [_Given(name, raw, "--" + name.replace("_", "-")) for name, raw in flags.items() if raw is not None]
    return _known(found, "flag", lambda name: "--" + name.replace("_", "-"), errors)


def _read_environ(environ: Mapping[str, str], errors: list[str]) -> list[_Given]:
    found = [
        _Given(name.removeprefix(PREFIX).lower(), raw, name)
        for name, raw in sorted(environ.items())
        if name.startswith(PREFIX) and raw.strip()
    ]
    return _known(found, "variable", lambda name: PREFIX + name.upper(), errors)


def _known(found: list[_Given], kind: str, spell: Callable[[str], str], errors: list[str]) -> list[_Given]:
    known = {*_BY_NAME, COMMANDS} if kind == "key" else {*_BY_NAME}
    for each in found:
        if each.name not in known:
            said = spell(each.name)
            place = "" if each.source == said else f"{each.source}: "
            near = names.suggest(each.name, _BY_NAME)
            remedy = f'did you mean "{spell(near)}"?' if near else "`treadle doctor` lists the settings"
            errors.append(f'{place}unknown {kind} "{said}"; {remedy}')
    return [each for each in found if each.name in known]


def _given(found: list[_Given], errors: list[str]) -> dict[str, tuple[Any, str]]:
    """Read every value, also those that another outranks: what is wrong in the file must not wait there to be found."""
    given: dict[str, tuple[Any, str]] = {}
    for each in found:
        try:
            value = _BY_NAME[each.name].read(each.raw)
        except ValueError as error:
            errors.append(f"{each.name} ({each.source}): {_without_subject(error)}")
            continue
        if each.name == "queues" and "queues" in given:
            value = _inherit(cast(tuple[DeclaredQueue, ...], value), given["queues"][0])
        given[each.name] = (value, each.source)
    return given


def _without_subject(error: ValueError) -> str:
    return str(error).removeprefix("it ").removeprefix("worker_version ")


def _inherit(queues: tuple[DeclaredQueue, ...], declared: tuple[DeclaredQueue, ...]) -> tuple[DeclaredQueue, ...]:
    """`-q mail` chooses among the queues of the file; what the file says of mail holds where the flag says nothing."""
    by_name = {queue.name: queue for queue in declared}
    return tuple(
        replace(
            by_name[queue.name],
            slots=queue.slots if queue.slots is not None else by_name[queue.name].slots,
        )
        if queue.name in by_name
        else queue
        for queue in queues
    )


def _resolve_url(
    given: dict[str, tuple[Any, str]], environ: Mapping[str, str], file: Path | None, cwd: Path, errors: list[str]
) -> None:
    url, source = given["url"]
    if variable := _VARIABLE.fullmatch(url):
        url = environ.get(variable[1], "")
        if "://" not in url:
            errors.append(f"url ({source}): the environment variable {variable[1]} is not set to a URL")
            return
    if file is not None and source.startswith(str(file)) and file.parent != cwd:
        url = _beside(url, file.parent)
    given["url"] = (url, source)


def _beside(url: str, folder: Path) -> str:
    # A relative path in a file means the same database from every folder below it.
    path = url.removeprefix("sqlite:///")
    if path == url or path.startswith(("/", ":")) or not path:
        return url
    return f"sqlite:///{folder / path}"


def _read_file(cwd: Path, errors: list[str]) -> tuple[Path | None, list[_Given]]:
    for folder in (cwd, *list(cwd.parents)[:PARENTS]):
        for path, within in ((folder / FILE, ()), (folder / "pyproject.toml", ("tool", "treadle"))):
            try:
                text = path.read_text("utf-8")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, UnicodeDecodeError) as error:
                if within:
                    continue  # another project's file, until it is known to be ours
                errors.append(f"{path}: cannot be read: {error}")
                return path, []
            if within and ".".join(within) not in text:
                continue
            found = _read_toml(path, text, within, errors)
            if found is not None:
                return path, found
    return None, []


def _read_toml(path: Path, text: str, within: tuple[str, ...], errors: list[str]) -> list[_Given] | None:
    import tomllib  # only where there is a file

    try:
        table: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        errors.append(f"{path}: not valid TOML: {error}")
        return []
    for key in within:
        if key not in table:
            return None
        table = table[key]
    found: list[_Given] = []
    for name, raw in table.items():
        place = _place(path, text, within, name)
        if name == "web" and isinstance(raw, dict):  # `web.port` is the setting web_port
            own = cast(dict[str, object], raw)
            found += [_Given(f"web_{key}", value, place) for key, value in own.items()]
        else:
            found.append(_Given(name, raw, place))
    return _known(found, "key", lambda name: name, errors)


def _place(path: Path, text: str, within: tuple[str, ...], key: str) -> str:
    """`path:line` of a key, or the path alone: tomllib keeps no positions, and the source is for people."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            table = tuple(part.strip().strip("\"'") for part in header[1].split("."))
            if table[: len(within) + 1] == (*within, key):
                return f"{path}:{number}"
        elif table == within and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[.=]", line):
            return f"{path}:{number}"
    return str(path)


def _part(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in kind.__annotations__}
