"""Writes the parts of the documentation that the code knows better: `make docs`. A test fails when they are old."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from treadle import checks
from treadle.cli import root
from treadle.config import SETTINGS, shown
from treadle.core import backoff, lifecycle
from treadle.core import settings as queue_settings
from treadle.core.backoff import Retry
from treadle.core.duration import words
from treadle.runtime import metrics
from treadle.web import openapi
from treadle.web.tables import api_routes

DOCS = Path(__file__).parent


def pages() -> dict[Path, str]:
    """Every generated page, as it should be."""
    return {
        DOCS / "reference" / "cli.md": cli_page(),
        DOCS / "reference" / "settings.md": settings_page(),
        DOCS / "reference" / "openapi.json": openapi.text(api_routes()),
        DOCS / "metrics.md": with_part(DOCS / "metrics.md", "metrics", metrics_tables()),
        DOCS / "operate.md": with_part(DOCS / "operate.md", "doctor", doctor_table()),
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
    lines += [f"| `{code}` | {meaning} |" for code, meaning in checks.MEANINGS.items()]
    found = {f"{checks.PREFIX}{name.upper()}": meaning for name, meaning in checks.STORAGE_MEANINGS.items()}
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
