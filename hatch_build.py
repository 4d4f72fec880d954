"""Brings the dashboard's libraries from npm, by the lockfile, at build time: `make assets`, and whoever builds a wheel.

Nothing of it is committed but its hashes, and nothing is packed that does not have them. They are checked twice: npm
compares each package with the SHA-512 in package-lock.json (a lockfile without one is refused here, since npm would
take whatever it is given), and each file that goes into a wheel or an sdist is compared with its SHA-256 below,
wherever it came from. A file that differs, is missing or is there besides ends the build.

Nothing is fetched when the files are there, so that an sdist, which holds them, needs no Node; without npm an editable
install goes on, and the pages work without live updates and charts. For a new version of a library: change
package.json, `npm install --package-lock-only`, take the `resolved` lines out of package-lock.json, read what has
changed in the library, `python hatch_build.py`, and copy the hashes that it tells.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LIB = HERE / "src" / "treadle" / "web" / "static" / "lib"
# Its name here: where it is in node_modules, and its SHA-256.
FILES = {
    "htmx.min.js": (
        "htmx.org/dist/htmx.min.js",
        "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f",
    ),
    "htmx.LICENSE.txt": (
        "htmx.org/LICENSE",
        "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    ),
    "uPlot.iife.min.js": (
        "uplot/dist/uPlot.iife.min.js",
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    "uPlot.min.css": (
        "uplot/dist/uPlot.min.css",
        "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
    "uPlot.LICENSE.txt": (
        "uplot/LICENSE",
        "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    ),
}
INTEGRITY = re.compile(r"sha512-[A-Za-z0-9+/]{86}==")


class WrongAsset(Exception):
    """What would be packed is not what was read and agreed to."""


def is_there() -> bool:
    return all((LIB / name).is_file() for name in FILES)


def check_lock(path: Path) -> None:
    """Every package has the hash that npm compares it with, and comes from the registry that whoever builds has set."""
    for name, package in json.loads(path.read_text("utf-8"))["packages"].items():
        if name and not INTEGRITY.fullmatch(package.get("integrity", "")):
            raise WrongAsset(f"{path.name}: {name} has no SHA-512: npm would take whatever it is given")
        if "resolved" in package or package.get("link"):
            raise WrongAsset(
                f"{path.name}: {name} names a place of its own: it must come from the registry that is set"
            )


def check_files(folder: Path) -> None:
    """The files have the hashes that are written here, and no others are with them: all of the folder is packed."""
    for name, (_, digest) in FILES.items():
        file = folder / name
        if file.is_symlink() or not file.is_file():
            raise WrongAsset(f"{file} is not there, or is not a file")
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != digest:
            raise WrongAsset(
                f"{file} has the SHA-256 {found}, and {digest} is expected: `make assets` fetches it again; if it was "
                "changed on purpose, read it, and write its hash into hatch_build.py"
            )
    extra = sorted(each.name for each in folder.iterdir() if each.name not in FILES)
    if extra:
        raise WrongAsset(f"{folder} holds what nobody has asked for: {', '.join(extra)}")


def fetch() -> None:
    """`npm ci` by the lockfile, without anybody's scripts, and copies of what is needed."""
    check_lock(HERE / "package-lock.json")
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("the dashboard's libraries come from npm, and npm is not here: install Node")
    subprocess.run(  # noqa: S603
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=HERE, check=True
    )
    LIB.mkdir(parents=True, exist_ok=True)
    for name, (source, _) in FILES.items():
        (LIB / name).unlink(missing_ok=True)
        shutil.copyfile(HERE / "node_modules" / source, LIB / name)
    check_files(LIB)


def ensure(*, needed: bool) -> None:
    """Libraries that are there must be the right ones; without any, an editable install goes on."""
    if is_there():
        check_files(LIB)
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
