"""Rules that no type checker knows: how SQL is made, what a statement that writes a job must name, what is forbidden.

Each rule has a twin that breaks it: a rule which finds nothing in its own bad example is no rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "treadle"
STORAGES = SRC / "storages"

Rule = Callable[[str, ast.AST], Iterator[str]]


def _found(rule: Rule, folder: Path = SRC) -> list[str]:
    return [
        f"{path.relative_to(SRC)}:{line}"
        for path in sorted(folder.rglob("*.py"))
        for line in rule(path.read_text(), ast.parse(path.read_text()))
    ]


def _broken(rule: Rule, text: str) -> list[str]:
    return list(rule(text, ast.parse(text)))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{_name(node.value)}.{node.attr}"
        case _:
            return ""


# Forbidden everywhere ------------------------------------------------------------------------------------------------

FORBIDDEN_IMPORTS = {"pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "os.system", "os.popen", "asyncio.wait_for", "yaml.load"}
NAIVE = {
    "datetime.utcnow",
    "datetime.datetime.utcnow",
    "datetime.utcfromtimestamp",
    "datetime.datetime.utcfromtimestamp",
}


def forbidden(_text: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found = {name.name.partition(".")[0] for name in names} & FORBIDDEN_IMPORTS
                yield from (f"{node.lineno}: import {name}" for name in found)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in FORBIDDEN_IMPORTS:
                yield f"{node.lineno}: import {module}"
            case ast.Call() if _name(node.func) in FORBIDDEN_CALLS | NAIVE:
                yield f"{node.lineno}: {_name(node.func)}()"
            case ast.Call() if any(
                each.arg == "shell" and not (isinstance(each.value, ast.Constant) and each.value.value is False)
                for each in node.keywords
            ):
                yield f"{node.lineno}: shell="
            case ast.ExceptHandler(type=None):
                yield f"{node.lineno}: bare except"
            case _:
                pass


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "eval('1')",
        "subprocess.run('x', shell=True)",
        "try:\n    pass\nexcept:\n    pass",
        "import asyncio\nasyncio.wait_for(1, 2)",
        "datetime.utcnow()",
    ],
)
def test_what_is_forbidden_is_found(text: str) -> None:
    assert _broken(forbidden, text)


def test_nothing_forbidden_is_used() -> None:
    assert _found(forbidden) == []


# The core has no clock and no chance ---------------------------------------------------------------------------------

IMPURE = {"time", "random", "asyncio", "logging", "os", "socket", "threading", "sqlite3", "secrets", "subprocess"}


def impure(_text: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and _name(node.func).endswith((".now", ".today")):
            yield f"{node.lineno}: {_name(node.func)}()"
        yield from (f"{getattr(node, 'lineno', 0)}: {name}" for name in names if name.partition(".")[0] in IMPURE)


@pytest.mark.parametrize("text", ["import time", "from random import random", "datetime.now(UTC)"])
def test_what_is_impure_is_found(text: str) -> None:
    assert _broken(impure, text)


def test_the_core_knows_neither_time_nor_chance() -> None:
    assert _found(impure, SRC / "core") == []


# SQL -----------------------------------------------------------------------------------------------------------------

EXECUTES = ("execute", "executemany", "executescript", "fetch", "fetchrow", "fetchval", "prepare")


def formatted(text: str, tree: ast.AST) -> Iterator[str]:
    """A statement with something formatted into it, where no comment says what: `noqa: S608` and the reason."""
    lines = text.splitlines()
    excused_file = "# ruff: noqa: S608" in text
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in EXECUTES):
            continue
        if not node.args or not isinstance(node.args[0], ast.JoinedStr):
            continue
        parts = node.args[0].values
        literal = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant)).lower()
        if not re.search(r"\b(select|insert|update|delete|create|drop|alter)\b", literal):
            continue  # a savepoint, a pragma: names of ours, and no row is read or written
        around = "\n".join(lines[node.lineno - 2 : (node.end_lineno or node.lineno) + 1])
        if not excused_file and "noqa: S608" not in around:
            yield f"{node.lineno}: {literal[:40]}"


def test_a_formatted_statement_is_found() -> None:
    assert _broken(formatted, "db.execute(f'delete from x where id = {id}')")


def test_no_statement_is_formatted_without_a_word() -> None:
    assert _found(formatted) == []


def _statements() -> dict[str, str]:
    """Every statement of the storages: the files, and the constants of the modules, without their comments."""
    found = {str(path.relative_to(SRC)): path.read_text() for path in STORAGES.rglob("*.sql")}
    for path in STORAGES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 20:
                found[f"{path.relative_to(SRC)}:{node.lineno}"] = node.value
    return {name: re.sub(r"--[^\n]*", "", text).lower() for name, text in found.items()}


STATEMENTS = _statements()


def _newest(function: str) -> str:
    """The body of the newest version of a function of PostgreSQL's."""
    found: dict[int, str] = {}
    for name, text in STATEMENTS.items():
        if name.endswith(".sql") and "postgres" in name:
            for match in re.finditer(rf"create function treadle\.{function}_(\d+)\b.*?\$\$(.*?)\$\$", text, re.S):
                found[int(match[1])] = match[2]
    return found[max(found)]


def test_the_claim_passes_over_locked_rows_and_tests_the_state_where_it_writes() -> None:
    body = _newest("claim")
    assert "for update" in body and "skip locked" in body
    update = body[body.index("update treadle.job") :]
    assert re.search(r"state\s*=\s*'ready'", update[: update.index("returning")])
    take = STATEMENTS["storages/sqlite/sql/claim_take.sql"]
    assert re.search(r"where .*state = 'ready'", take, re.S)


@pytest.mark.parametrize("function", ["finish", "return"])
def test_the_end_of_a_run_names_token_and_state(function: str) -> None:
    body = _newest(function)
    assert re.search(r"j\.token = u\.token", body)
    assert re.search(r"j\.state = 'running'", body)


def test_a_success_on_sqlite_names_token_and_state() -> None:
    where = STATEMENTS["storages/sqlite/sql/succeed.sql"].partition("where")[2]
    assert "token = finish.column2" in where
    assert "state = 'running'" in where


def test_sqlite_begins_every_write_at_once_and_has_no_clock_of_its_own() -> None:
    for name, text in STATEMENTS.items():
        if "/sqlite/" in name:
            assert not re.search(r"\bcurrent_timestamp\b|\bdatetime\('now'|strftime\(.*'now'", text), name
            assert not re.fullmatch(r"\s*begin(\s+(deferred|exclusive|transaction))?\s*;?\s*", text), name


def test_postgresql_asks_for_the_clock_through_its_functions_only() -> None:
    # now() is the start of the transaction: in one that waits for a lock it is the past.
    for name, text in STATEMENTS.items():
        if "/postgres/" in name:
            assert not re.search(r"(?<![\w.])now\(\)|\bcurrent_timestamp\b|\btransaction_timestamp\b", text), name


def test_postgresql_keeps_no_session_state() -> None:
    for name, text in STATEMENTS.items():
        if "/postgres/" in name:
            assert not re.search(r"pg_(try_)?advisory_lock|create temp|\bset session\b|\bdeclare .* cursor\b", text), (
                name
            )


def test_migrations_rewrite_no_table() -> None:
    for name, text in STATEMENTS.items():
        if "/postgres/sql/0" in name and "0001" not in name:
            assert not re.search(r"alter column \w+ (set data )?type|set logged|\bcluster\b|\bvacuum full\b", text), (
                name
            )
            # A column that must have a value needs a constant to begin with: then no row is touched.
            for added in re.findall(r"add column [^;,]*", text):
                assert "not null" not in added or "default" in added, f"{name}: {added}"
