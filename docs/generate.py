"""Writes the parts of the documentation that the code knows better: `make docs`. A test fails when they are old."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

import treadle
from treadle.cli import root
from treadle.config import SETTINGS, shown
from treadle.core import backoff, glossary, lifecycle
from treadle.core import settings as queue_settings
from treadle.core.backoff import Retry
from treadle.core.duration import words
from treadle.core.outcome import Signal
from treadle.operate import doctor
from treadle.runtime import metrics
from treadle.web import openapi
from treadle.web.tables import api_routes

DOCS = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Every generated page, as it should be."""
    return {
        DOCS / "reference" / "api.md": api_page(),
        DOCS / "reference" / "cli.md": cli_page(),
        DOCS / "reference" / "settings.md": settings_page(),
        DOCS / "reference" / "openapi.json": openapi.text(api_routes()),
        DOCS / "metrics.md": with_part(DOCS / "metrics.md", "metrics", metrics_tables()),
        DOCS / "operate.md": with_part(DOCS / "operate.md", "doctor", doctor_table()),
        DOCS / "glossary.md": with_part(DOCS / "glossary.md", "labels", labels_table()),
        DOCS / "queues.md": with_part(DOCS / "queues.md", "settings", queue_table()),
        DOCS / "retries.md": with_part(DOCS / "retries.md", "backoff", backoff_table()),
        DOCS / "guarantees.md": with_part(DOCS / "guarantees.md", "states", f"```mermaid\n{lifecycle.diagram()}\n```"),
    }


def with_part(page: Path, name: str, part: str) -> str:
    before, _, rest = page.read_text().partition(f"<!-- generated: {name} -->")
    _, _, after = rest.partition("<!-- end -->")
    return f"{before}<!-- generated: {name} -->\n{part}\n<!-- end -->{after}"


def backoff_table() -> str:
    rows = backoff.table(Retry())
    total = sum(delay for _, delay in rows)
    lines = ["| after attempt | delay |", "|---|---|", *(f"| {attempt} | {words(delay)} |" for attempt, delay in rows)]
    return "\n".join([*lines, "", f"About {words(round(total / 60) * 60)} in all."])


def labels_table() -> str:
    parts: list[str] = []
    for group, labels in glossary.LABELS.items():
        parts += [f"### {group}", "", "| label | means |", "|---|---|"]
        parts += [*(f"| **{label}** | {says} |" for label, says in labels.items()), ""]
    return "\n".join(parts).rstrip()


def metrics_tables() -> str:
    heads = {
        "shared": "Of the cluster, and so the same from every worker: take the maximum over them.",
        "own": "Of one worker: add them up.",
    }
    lines: list[str] = []
    for part, members in metrics.describe().items():
        lines += [heads[part], "", "| name | kind | labels | meaning |", "|---|---|---|---|"]
        for each in members:
            labels = ", ".join(f"`{label}`" for label in each.labels)
            lines.append(f"| `{each.name}` | {each.kind} | {labels} | {each.meaning} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def doctor_table() -> str:
    lines = ["| code | tells |", "|---|---|"]
    lines += [f"| `{code}` | {meaning} |" for code, meaning in doctor.MEANINGS.items()]
    found = {f"{doctor.PREFIX}{name.upper()}": meaning for name, meaning in doctor.STORAGE_MEANINGS.items()}
    return "\n".join([*lines, *(f"| `{code}` | {meaning} |" for code, meaning in found.items())])


def queue_table() -> str:
    lines = ["| setting | flag | meaning | built in |", "|---|---|---|---|"]
    for each in queue_settings.SETTINGS:
        flag = f"--{each.name.replace('_', '-')} {each.example}"
        lines.append(f"| `{each.name}` | `{flag}` | {each.says} | {each.built_in} |")
    return "\n".join(lines)


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "A flag, then the environment, then `treadle.toml` (or `[tool.treadle]` in `pyproject.toml`, in the working",
        "directory or up to four above it), then the default. Unknown keys are errors with a suggestion; `treadle",
        "doctor` says where each value came from. Durations are seconds or text such as `1h30m`.",
        "",
        "| setting | environment | default | meaning |",
        "|---|---|---|---|",
    ]
    for setting in SETTINGS:
        default = "" if setting.default in (None, (), frozenset()) else f"`{shown(setting.name, setting.default)}`"
        lines.append(f"| `{setting.name}` | `{setting.env}` | {default} | {setting.meaning} |")
    return "\n".join(lines) + "\n"


# The page that shows a name in use, where there is one.
SHOWN = {
    "start.md": "App Handle",
    "tasks.md": "Registry Task AsyncTask SyncTask Context Call",
    "batch.md": "BatchTask BatchContext",
    "commands.md": "OutsideTask",
    "pools.md": "Pool",
    "http-executor.md": "BadSignature",
    "middleware.md": "Middleware Next",
    "retries.md": "Retry RetryAfter Snooze Throttle Fail Cancel",
    "unique.md": "Unique",
    "queues.md": "Partitions QueueView TaskView",
    "cluster.md": "Portion ClusterWarning PodView DeployView PodNotFound",
    "limits.md": "Lock LimitView LockView LockHeld LockLost RateLimited UnknownLimit",
    "schedules.md": "ScheduleView FireView ScheduleNotFound",
    "history.md": "Series PairSeries Point Spread EventView ReadingView DepthSeries QueueDepths DepthPoint Comparison "
    "PairChange Difference",
    "operate.md": "JobView JobPage ErrorView FilterError",
    "operations.md": "OperationView Preview FailurePage FailureView AuditView OperationNotFound",
    "progress.md": "ProgressView LogView ClaimLost",
    "answers.md": "Wait WaitView AnswerAgain AnswerExpired AnswerFailed AnswerNotFound AnswerStale",
    "postgres.md": "StorageUnavailable StorageTimeout SchemaTooOld SchemaTooNew",
}
FACES = (
    "jobs",
    "queues",
    "schedules",
    "pods",
    "limits",
    "locks",
    "operations",
    "history",
    "answers",
    "audit",
    "catalog",
)
# Attributes that are values, and so have no docstring.
VALUES = {
    "app.name": "The name that it was given, for the labels of its workers.",
    "app.url": "Where its jobs are kept.",
    "app.tasks": "Its tasks by name.",
    "ctx.max_attempts": "How many attempts the job has in all.",
    "ctx.slot": "The name of the slot that runs it.",
    "ctx.state": "What the app's `lifespan` has yielded.",
    "handle.id": "The id of the job that stands for the request.",
    "handle.outcome": "`inserted`, or what became of the request otherwise: `duplicate`, `replaced`, `kept`.",
    "task.aliases": "Its former names.",
    "task.cpu": "How many seconds of the processor a call may take in a child process.",
    "task.executor": "What runs it: `async`, `thread`, `process` …",
    "task.function": "The function itself.",
    "task.is_async": "Whether that is an `async def`.",
    "task.memory": "How many bytes a call may take in a child process.",
    "task.name": "Its name.",
    "task.queue": "Its own queue, if it names one.",
    "task.retry": "Its Retry.",
    "task.timeout": "Seconds for each attempt.",
}
OF_OBJECTS = {"ctx": treadle.Context, "task": treadle.Task, "handle": treadle.Handle}


def api_page() -> str:
    pages = {name: page for page, names in SHOWN.items() for name in names.split()}
    names = [name for name in treadle.__all__ if name != "__version__"]
    later = {name for names in treadle._LATER.values() for name in names}  # pyright: ignore[reportPrivateUsage]
    kinds = {name: _kind(getattr(treadle, name), is_later=name in later) for name in names}
    lines = [
        "# The public names",
        "",
        "Everything that `import treadle` gives, and what can be asked of an app, of `ctx`, of a task and of a handle.",
        "Each has a docstring with an example: `help(treadle.Retry)`. What is not on this page is not public.",
    ]
    for kind in ("Apps and tasks", "What a task raises to say what should happen", "What is read", "Errors"):
        lines += ["", f"## {kind}", "", "| name | is |", "|---|---|"]
        for name in sorted(name for name in names if kinds[name] == kind):
            page = f" [More]({'../' + pages[name]})" if name in pages else ""
            lines.append(f"| `{name}` | {_first(getattr(treadle, name), name)}{page} |")
    lines += ["", "What a task raises is no error, and does not derive from `TreadleError`.", ""]
    app = treadle.App("memory://")
    samples = {"ctx": treadle.Context.without_job(""), "task": app.task(name="task")(print), "handle": treadle.Handle}
    lines += ["## app", "", *_members("app", treadle.App, (name for name in dir(app) if name not in FACES))]
    lines += [
        "",
        "Acts of operators name the state that they expect: one that came too late raises `Conflict`, with what is",
    ]
    lines += ["true now. In `by=` they take the name of whoever acts, for the audit."]
    for face in FACES:
        found = getattr(app, face)
        lines += [
            "",
            f"## app.{face}",
            "",
            f"{_first(type(found), face)}",
            "",
            *_members(f"app.{face}", type(found), dir(found)),
        ]
    for word, kind in OF_OBJECTS.items():
        lines += ["", f"## {word}", "", f"{_first(kind, word)}", "", *_members(word, kind, dir(samples[word]))]
    return "\n".join(lines) + "\n"


def _kind(value: Any, *, is_later: bool) -> str:
    if inspect.isclass(value) and issubclass(value, treadle.TreadleError):
        return "Errors"
    if inspect.isclass(value) and issubclass(value, Signal):
        return "What a task raises to say what should happen"
    return "What is read" if is_later and value is not treadle.Lock else "Apps and tasks"


def _members(of: str, kind: type, names: Iterable[str]) -> list[str]:
    """A table of the attributes that are there for everybody; a `_sync` twin stands beside its own."""
    public = sorted(name for name in names if not name.startswith("_"))
    lines = ["| name | does |", "|---|---|"]
    for name in public:
        found = inspect.getattr_static(kind, name, None)
        if name.removesuffix("_sync") in public and name.endswith("_sync"):
            continue
        twin = f", `{name}_sync`" if f"{name}_sync" in public else ""
        said = VALUES.get(f"{of}.{name}") or _first(found, name)
        call = "(…)" if inspect.isroutine(found) else ""
        lines.append(f"| `{of}.{name}{call}`{twin} | {said} |")
    return lines


def _first(value: Any, name: str) -> str:
    """The first sentence of a docstring."""
    text = "A function of `(ctx, call)` around runs." if name == "Middleware" else inspect.getdoc(value)
    if not text:
        raise LookupError(
            f"{name} is public and has no docstring (or meaning in VALUES): see tests/test_public_names.py"
        )
    paragraph = " ".join(re.split(r"\n\s*\n", text)[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0].rstrip(":")
    return sentence.replace("|", "\\|")


def cli_page() -> str:
    lines = ["# Command line", "", "Every command's own `--help`. Data goes to stdout, words to stderr."]
    for path, command in commands(root, ("treadle",)):
        context = click.Context(command, info_name=" ".join(path), max_content_width=100, terminal_width=100)
        lines += ["", f"## {' '.join(path)}", "", "```text", command.get_help(context).rstrip(), "```"]
    return "\n".join(lines) + "\n"


def commands(command: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                found += commands(child, (*path, name))
    return found


def main() -> None:
    old = [page for page, text in pages().items() if not page.exists() or page.read_text() != text]
    if "--check" in sys.argv:
        sys.exit(f"old: {', '.join(map(str, old))}; run make docs" if old else 0)
    for page, text in pages().items():
        page.parent.mkdir(exist_ok=True)
        page.write_text(text)


if __name__ == "__main__":
    main()
