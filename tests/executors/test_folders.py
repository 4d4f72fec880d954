"""Private folders of runs: nothing is left of the dead, and nothing is taken from the living."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from pathlib import Path

import pytest

from treadle.executors import folders
from treadle.executors.folders import FORGOTTEN, PREFIX, Folders, remove


def test_a_folder_is_private_and_goes(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path))
    made = Path(folders.make())
    assert made.stat().st_mode & 0o777 == 0o700
    (made / "a").mkdir()
    remove(made)
    assert not made.exists()
    folders.close()
    assert list(tmp_path.iterdir()) == []


def test_the_living_are_left_alone(tmp_path: Path) -> None:
    first, second = Folders(str(tmp_path)), Folders(str(tmp_path))
    made = Path(first.make())
    second.open()
    assert made.exists()
    first.close()
    second.close()


def test_what_is_not_ours_is_left_alone_whatever_it_is_called(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".lock").touch()
    (elsewhere / "kept").touch()
    root = tmp_path / "root"
    root.mkdir()
    (root / f"{PREFIX}link").symlink_to(elsewhere)
    (root / f"{PREFIX}file").touch()
    (root / f"{PREFIX}nolock").mkdir()
    (root / f"{PREFIX}nolock" / "kept").touch()
    folders = Folders(str(root))
    folders.open()
    folders.close()
    assert (elsewhere / "kept").exists()
    assert (root / f"{PREFIX}file").exists()
    assert (root / f"{PREFIX}nolock" / "kept").exists()


def test_one_that_never_got_its_lock_is_removed_when_it_is_old(tmp_path: Path) -> None:
    for name, age in (("young", 0.0), ("old", 2 * FORGOTTEN)):
        folder = tmp_path / f"{PREFIX}{name}"
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    folders = Folders(str(tmp_path))
    folders.open()
    folders.close()
    assert [each.name for each in tmp_path.iterdir()] == [f"{PREFIX}young"]


def test_a_folder_that_somebody_tidied_away_is_made_again(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path))
    shutil.rmtree(Path(folders.make()).parent)
    assert Path(folders.make()).exists()
    folders.close()


def test_many_come_and_go_at_once(tmp_path: Path) -> None:
    """Whoever makes a folder, and is taken for dead before it has its lock, begins again."""
    missing: list[str] = []

    def live() -> None:
        for _ in range(20):
            folders = Folders(str(tmp_path))
            made = folders.make()
            if not Path(made).exists():
                missing.append(made)
            folders.close()

    threads = [threading.Thread(target=live) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missing == []
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_a_folder_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "broken").symlink_to("/no/such")
    folder.chmod(0)
    remove(folder)
    assert not folder.exists()
    assert (outside / "kept").exists()
    assert outside.stat().st_mode & 0o777 == 0o755


def test_root_changes_no_mode_of_what_might_be_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir(mode=0o755)
    for who, mode in ((0, 0o755), (1000, 0o700)):
        monkeypatch.setattr(os, "geteuid", lambda who=who: who)
        folders._open_up(os.rmdir, str(tmp_path / "theirs"), None)
        assert stat.S_IMODE((tmp_path / "theirs").stat().st_mode) == mode
