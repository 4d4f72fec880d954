"""What a wheel packs besides our own code has the hashes that are committed, or there is no wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build hook of a copy, as hatchling would load it."""
    if importlib.util.find_spec("hatchling") is None:
        parts = ["hatchling", "builders", "hooks", "plugin", "interface"]
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        vars(sys.modules["hatchling.builders.hooks.plugin.interface"])["BuildHookInterface"] = SimpleNamespace
    spec = importlib.util.spec_from_file_location("a_copy_of_hatch_build", folder / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of what an sdist has, with libraries of our own, and its hook. There is no npm: nothing can be fetched."""
    for name in ("hatch_build.py", "package.json", "package-lock.json"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setenv("PATH", str(tmp_path))
    module = loaded(tmp_path, monkeypatch)
    module.LIB.mkdir(parents=True)
    for name, (source, _) in list(module.FILES.items()):
        (module.LIB / name).write_text(name)
        module.FILES[name] = source, hashlib.sha256(name.encode()).hexdigest()
    return module


def a_wheel(build: Any, version: str = "standard") -> None:
    build.Assets().initialize(version, {})


def test_the_libraries_that_are_here_have_the_hashes_that_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    build: Any = loaded(ROOT, monkeypatch)
    if not build.is_there():
        pytest.skip("the dashboard's libraries are not here: make assets")
    build.check_files(build.LIB)


def test_what_has_its_hashes_is_packed(build: Any) -> None:
    a_wheel(build)


@pytest.mark.parametrize("version", ["standard", "editable"])
@pytest.mark.parametrize("name", ["htmx.min.js", "uPlot.iife.min.js", "uPlot.min.css", "htmx.LICENSE.txt"])
def test_a_file_that_was_tampered_with_is_not_packed(build: Any, name: str, version: str) -> None:
    file = build.LIB / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(build.WrongAsset, match=rf"{name} has the SHA-256 .* is expected"):
        a_wheel(build, version)


def test_a_file_besides_is_not_packed(build: Any) -> None:
    (build.LIB / "more.js").write_text("alert(1)")
    with pytest.raises(build.WrongAsset, match=r"nobody has asked for: more\.js"):
        a_wheel(build)


def test_a_link_in_the_place_of_a_file_is_not_packed(build: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.js"
    (build.LIB / "htmx.min.js").rename(elsewhere)
    (build.LIB / "htmx.min.js").symlink_to(elsewhere)
    with pytest.raises(build.WrongAsset, match="not a file"):
        a_wheel(build)


def test_a_missing_file_ends_the_build_and_not_an_editable_install(
    build: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (build.LIB / "uPlot.min.css").unlink()
    with pytest.raises(FileNotFoundError, match="npm is not here"):
        a_wheel(build)
    a_wheel(build, "editable")
    assert "make assets" in capsys.readouterr().err


def test_what_npm_brought_is_compared_before_anybody_uses_it(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a registry that gives another package under the same name, and a lockfile to match."""

    def npm_ci(*args: Any, **options: Any) -> None:
        for source, _ in build.FILES.values():
            (build.HERE / "node_modules" / source).parent.mkdir(parents=True, exist_ok=True)
            (build.HERE / "node_modules" / source).write_text("something else")

    monkeypatch.setattr(build.shutil, "which", lambda name: "/usr/bin/npm")
    monkeypatch.setattr(build.subprocess, "run", npm_ci)
    with pytest.raises(build.WrongAsset, match=r"htmx\.min\.js has the SHA-256"):
        build.fetch()


def test_the_lockfile_has_a_hash_for_every_package_and_names_no_host(build: Any) -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    build.check_lock(ROOT / "package-lock.json")
    assert {name for name in lock["packages"] if name} == {
        "node_modules/axe-core", "node_modules/htmx.org", "node_modules/uplot",
    }  # fmt: skip
    assert "://" not in (ROOT / "package-lock.json").read_text() + (ROOT / "package.json").read_text()


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("integrity", None, "no SHA-512"),
        ("integrity", "", "no SHA-512"),
        ("integrity", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", "no SHA-512"),
        ("integrity", "sha512-short==", "no SHA-512"),
        ("resolved", "https://npm.example/htmx.tgz", "a place of its own"),
        ("link", True, "a place of its own"),
    ],
)
def test_a_lockfile_that_npm_would_not_check_is_refused(build: Any, field: str, value: Any, why: str) -> None:
    path = build.HERE / "package-lock.json"
    lock = json.loads(path.read_text())
    package = lock["packages"]["node_modules/htmx.org"]
    package |= {field: value}
    if value is None:
        del package[field]
    path.write_text(json.dumps(lock))
    with pytest.raises(build.WrongAsset, match=why):
        build.fetch()
