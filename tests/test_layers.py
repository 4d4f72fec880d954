"""Who may import whom: the contracts are in pyproject.toml, import-linter checks them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_no_layer_imports_what_it_may_not() -> None:
    # In a process of its own: it sets up logging, and by that switches off every logger that there is.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_the_root_has_few_modules() -> None:
    """Beside the packages: whatever is new belongs to a layer and a noun (docs/architecture.md)."""
    modules = {path.stem for path in (ROOT / "src" / "treadle").glob("*.py")} - {"__init__"}
    assert modules == {
        "app", "config", "hooks", "middleware", "ports", "private_files", "signing", "trace",
    }  # fmt: skip


def test_a_package_without_a_face_costs_nothing() -> None:
    for name in ("client", "context", "operate", "tasks", "storages/shared"):
        assert (ROOT / "src" / "treadle" / name / "__init__.py").read_text() == "", name
