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
