"""The statements: one per file, named for its verb. Numbered files are migrations."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def statement(name: str) -> str:
    """The text of one statement."""
    return resources.files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8").strip()


@functools.cache
def migrations() -> tuple[tuple[str, str], ...]:
    """(name, text) of every migration, oldest first."""
    found = sorted(
        (file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in resources.files(__name__).iterdir()
        if file.name[:1].isdigit() and file.name.endswith(".sql")
    )
    return tuple(found)
