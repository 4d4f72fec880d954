"""Virtual environments of the peers, one each, so that no library's dependencies meet another's.

They are made when first needed and kept: a change of the pinned versions makes a new one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".bench-venvs"


def python(name: str) -> str:
    """The interpreter of a peer's environment."""
    return str(FOLDER / name / "bin" / "python")


def make(name: str, requirements: Sequence[str]) -> None:
    wanted = "\n".join(requirements) + "\n"
    made = FOLDER / name / "requirements.txt"
    if made.exists() and made.read_text() == wanted:
        return
    print(f"  making {FOLDER.name}/{name}: {' '.join(requirements)}", file=sys.stderr, flush=True)
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER / name)], check=True)
    install = [python(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    made.write_text(wanted)
