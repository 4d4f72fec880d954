"""Finding the App and the storage: every way it can be missing has one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle import App, ConfigError, StorageUnavailable
from treadle.cli import target
from treadle.config import Config, load


def config(**flags: object) -> Config:
    return load(flags)


def refused(**flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        target.load_app(config(**flags))
    (line,) = str(caught.value).splitlines()
    return line


def test_an_app_is_named_by_module_and_attribute(shop: str) -> None:
    app = target.load_app(config(app=shop))
    assert isinstance(app, App)
    assert "shop.welcome" in app.tasks
    assert target.load_app(config(app="shop")) is app


def test_an_app_is_named_by_the_environment_or_the_file(
    shop: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_APP", shop)
    app = target.load_app(load())
    monkeypatch.delenv("TREADLE_APP")
    (folder / "treadle.toml").write_text(f'app = "{shop}"')
    assert target.load_app(load()) is app


@pytest.mark.parametrize("place", target.PLACES)
def test_an_app_is_found_in_the_usual_places(place: str, folder: Path) -> None:
    (folder / f"{place}.py").write_text("import treadle\napp = treadle.App()\n")
    assert isinstance(target.load_app(config()), App)


def test_another_frameworks_app_is_passed_over(folder: Path) -> None:
    (folder / "app.py").write_text("app = object()\n")
    (folder / "tasks.py").write_text("import treadle\napp = treadle.App()\n")
    (folder / "jobs.py").write_text("raise RuntimeError('has no app, and is not imported')\n")
    assert isinstance(target.load_app(config()), App)


def test_no_app_at_all_says_where_it_was_looked_for(folder: Path) -> None:
    line = refused()
    assert "-A module:app" in line
    assert "main.py" in line


def test_a_missing_module_is_named_with_a_suggestion(shop: str) -> None:
    assert refused(app="shpo:app").endswith('did you mean "shop"?')


def test_a_missing_package_is_named(folder: Path) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "jobs.py").write_text("")
    assert refused(app="pkg.job:app").endswith('did you mean "pkg.jobs"?')


def test_a_path_instead_of_a_module_is_corrected(shop: str) -> None:
    assert "for example src.shop:app" in refused(app="src/shop.py:app")


def test_a_missing_attribute_suggests_the_nearest(shop: str) -> None:
    assert refused(app="shop:ap").endswith('did you mean "shop:app"?')


def test_a_module_with_one_app_suggests_it_whatever_was_written(folder: Path) -> None:
    (folder / "jobs_of_mine.py").write_text("import treadle\nqueue = treadle.App()\n")
    assert refused(app="jobs_of_mine:application").endswith('did you mean "jobs_of_mine:queue"?')


def test_an_attribute_that_is_no_app_says_what_it_is(shop: str) -> None:
    assert refused(app="shop:number") == 'shop:number is a int, not an App; did you mean "shop:app"?'


def test_a_module_that_breaks_says_how_and_where(folder: Path) -> None:
    (folder / "torn.py").write_text("x = 1\ny = x / 0\n")
    assert refused(app="torn:app").startswith("importing torn failed: ZeroDivisionError: division by zero (torn.py:2)")


def test_a_module_that_misses_another_is_not_called_missing_itself(folder: Path) -> None:
    (folder / "needy.py").write_text("import no_such_library_at_all\n")
    line = refused(app="needy:app")
    assert line.startswith("importing needy failed: ModuleNotFoundError: No module named 'no_such_library_at_all'")


def test_the_flag_decides_where_an_apps_jobs_are(shop: str, folder: Path) -> None:
    app = target.load_app(config(app=shop, url="sqlite:///elsewhere.db"))
    assert app.url == "sqlite:///elsewhere.db"


def test_an_app_that_names_its_storage_contradicts_the_flag(shop: str) -> None:
    assert refused(app="shop:other", url="sqlite:///elsewhere.db").endswith("leave --url out")


def test_without_a_url_the_named_apps_own_is_looked_at(shop: str) -> None:
    assert target.url_of(config(app="shop:other")) == "sqlite:///other.db"
    assert target.url_of(config(app="shop:other", url="sqlite:///x.db")) == "sqlite:///x.db"
    assert target.url_of(config()) == "sqlite:///treadle.db"


def test_a_database_that_is_not_there_is_refused_with_what_to_do(folder: Path) -> None:
    with pytest.raises(StorageUnavailable, match=r"no such database: none\.db .*--url or TREADLE_URL"):
        target.must_exist("sqlite:///none.db")
    (folder / "none.db").touch()
    with pytest.raises(StorageUnavailable, match=r"none\.db has no Treadle tables .*treadle db migrate"):
        target.must_exist("sqlite:///none.db")
    App("sqlite:///none.db").open_sync()
    target.must_exist("sqlite:///none.db")
    target.must_exist("memory://")
