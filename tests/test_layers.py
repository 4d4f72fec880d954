"""Who may import whom: the contracts are in pyproject.toml, import-linter checks them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from importlinter import cli

ROOT = Path(__file__).parent.parent


def test_no_layer_imports_what_it_may_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", sys.path[:])  # the linter adds the folder that it runs in
    broken = cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert not broken, capsys.readouterr().out
