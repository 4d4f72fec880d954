"""Brings the dashboard's libraries from npm, by the lockfile, at build time: `make assets`, and whoever builds a wheel.

Nothing of it is committed. It is skipped when the files are there, so that an sdist, which holds them, needs no Node;
without npm an editable install goes on, and the pages work without live updates and charts.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LIB = HERE / "src" / "treadle" / "web" / "static" / "lib"
FILES = {
    "htmx.min.js": "htmx.org/dist/htmx.min.js",
    "htmx.LICENSE.txt": "htmx.org/LICENSE",
    "uPlot.iife.min.js": "uplot/dist/uPlot.iife.min.js",
    "uPlot.min.css": "uplot/dist/uPlot.min.css",
    "uPlot.LICENSE.txt": "uplot/LICENSE",
}


def is_there() -> bool:
    return all((LIB / name).is_file() for name in FILES)


def fetch() -> None:
    """`npm ci` by the lockfile, without anybody's scripts, and copies of what is needed."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("the dashboard's libraries come from npm, and npm is not here: install Node")
    subprocess.run(  # noqa: S603
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=HERE, check=True
    )
    LIB.mkdir(parents=True, exist_ok=True)
    for name, source in FILES.items():
        shutil.copyfile(HERE / "node_modules" / source, LIB / name)


def ensure(*, needed: bool) -> None:
    if is_there():
        return
    try:
        fetch()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        if needed:
            raise
        print(
            f"treadle: the dashboard has no live updates and charts until `make assets` works: {error}", file=sys.stderr
        )


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # `make assets` runs this file by itself
    if __name__ != "__main__":
        raise
else:

    class Assets(BuildHookInterface):  # type: ignore[type-arg]
        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            # An editable install ("editable") may go without; a wheel and an sdist may not.
            ensure(needed=version != "editable")


if __name__ == "__main__":
    fetch()
