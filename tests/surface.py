"""The public surface as one value: exports, settings, commands, routes, metrics, loggers, SQL functions.

`python -m tests.surface` writes it to tests/surface.json; tests/test_surface.py compares. A move of code must not
change it; a feature does, and its commit shows how.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import click

import treadle
from treadle.cli import root
from treadle.config import SETTINGS
from treadle.runtime import metrics
from treadle.web.tables import api_routes, page_routes

RECORDED = Path(__file__).parent / "surface.json"
PACKAGE = Path(treadle.__file__).parent
DOCS = PACKAGE.parent.parent / "docs"


def surface() -> dict[str, Any]:
    return {
        "exports": sorted(treadle.__all__),
        "settings": sorted(setting.name for setting in SETTINGS),
        "commands": dict(sorted(_commands(root, "treadle"))),
        "routes": sorted(f"{route.method} {route.path} ({route.action})" for route in (*api_routes(), *page_routes())),
        "metrics": {
            each.name: f"{each.kind} {','.join(each.labels)}".strip()
            for part in metrics.describe().values()
            for each in part
        },
        "loggers": sorted(_loggers()),
        "sql functions": sorted(_sql_functions()),
    }


def _commands(command: click.Command, path: str) -> list[tuple[str, list[str]]]:
    given = [option for each in command.params for option in (*each.opts, *each.secondary_opts)]
    found = [(path, sorted(given))]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += _commands(inner, f"{path} {name}")
    return found


def _loggers() -> set[str]:
    """Names that are written out: people configure them."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "getLogger":
                found |= {ast.unparse(each) for each in node.args}
    return found


def _sql_functions() -> set[str]:
    """Functions of the schema that the documentation names."""
    written = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    made = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.sql"))
    named = set(re.findall(r"treadle\.([a-z_0-9]+)\(", written))
    return named & set(re.findall(r"(?i)function treadle\.([a-z_0-9]+)\s*\(", made))


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(surface(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
