from __future__ import annotations

import importlib.metadata
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import treadle

SURFACE = [
    "AnswerAgain",
    "AnswerExpired",
    "AnswerFailed",
    "AnswerNotFound",
    "AnswerStale",
    "App",
    "AsyncTask",
    "AuditView",
    "BadSignature",
    "BatchContext",
    "BatchTask",
    "BulkIncomplete",
    "Call",
    "Cancel",
    "ClusterWarning",
    "ConfigError",
    "ClaimLost",
    "Comparison",
    "Conflict",
    "Context",
    "DepthPoint",
    "DepthSeries",
    "DeployView",
    "Difference",
    "ErrorView",
    "EventView",
    "Fail",
    "FailurePage",
    "FailureView",
    "FilterError",
    "FireView",
    "Handle",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobPage",
    "JobView",
    "Middleware",
    "MissingExtra",
    "Next",
    "LimitView",
    "Lock",
    "LockHeld",
    "LockLost",
    "LockView",
    "LogView",
    "OperationNotFound",
    "OperationView",
    "OutsideTask",
    "PairChange",
    "PairSeries",
    "Partitions",
    "PayloadError",
    "PayloadTooLarge",
    "PodNotFound",
    "PodView",
    "Point",
    "Pool",
    "Portion",
    "Preview",
    "ProgressView",
    "QueueDepths",
    "QueueView",
    "RateLimited",
    "ReadOnly",
    "ReadingView",
    "Registry",
    "ResultNotKept",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "ScheduleNotFound",
    "ScheduleView",
    "SchemaTooNew",
    "SchemaTooOld",
    "Series",
    "Snooze",
    "Spread",
    "StorageDenied",
    "StorageTimeout",
    "StorageUnavailable",
    "SweepView",
    "SyncTask",
    "Task",
    "TaskView",
    "Throttle",
    "TreadleError",
    "Wait",
    "WaitView",
    "Unique",
    "UnknownLimit",
    "UnknownTask",
    "__version__",
]

# What a process that only enqueues must not pay for, and what only one storage needs.
NOT_YET = [
    "click",
    "rich",
    "sqlite3",
    "tomllib",
    "multiprocessing",
    "treadle.storages",
    "treadle.runtime",
    "treadle.cli",
    # What operators read, and what reads it for them.
    "treadle.core.cron",
    "treadle.core.filter",
    "treadle.core.view",
    "treadle.operate.jobs",
    "treadle.operate.schedules",
]

CALLS = """
import sys
import asyncio, dataclasses, logging, msgspec, pathlib  # are another number in every version of Python
calls = 0
def count(frame, event, arg):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)
import treadle
sys.setprofile(None)
print(calls)
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_the_public_surface_is_this_list() -> None:
    assert sorted(treadle.__all__) == sorted(SURFACE)
    assert all(hasattr(treadle, name) for name in SURFACE)


def test_a_name_that_is_loaded_later_is_the_one_of_its_module() -> None:
    found = python("import treadle\nfrom treadle import JobView\nprint('JobPage' in dir(treadle), JobView.__module__)")
    assert found.split() == ["True", "treadle.core.view"]
    with pytest.raises(AttributeError, match="'treadle' has no attribute 'JobsView'"):
        _ = treadle.JobsView


def test_no_exported_name_is_also_a_submodule() -> None:
    submodules = {module.name for module in pkgutil.iter_modules(treadle.__path__)}
    assert submodules & set(treadle.__all__) == set()


def test_every_error_derives_from_the_one_base_and_no_signal_does() -> None:
    for name in SURFACE:
        value = getattr(treadle, name)
        if isinstance(value, type) and issubclass(value, Exception):
            is_signal = name in ("RetryAfter", "Snooze", "Throttle", "Fail", "Cancel", "Wait", "AnswerAgain")
            assert issubclass(value, treadle.TreadleError) is not is_signal, name


def test_the_version_is_that_of_the_package() -> None:
    assert treadle.__version__ == importlib.metadata.version("treadle")


def test_every_name_that_must_not_be_loaded_exists() -> None:
    """A list of names that were renamed since would guard nothing."""
    assert [name for name in NOT_YET if importlib.util.find_spec(name) is None] == []


def test_importing_treadle_imports_neither_drivers_nor_the_command_line() -> None:
    loaded = python("import sys, treadle; print(*sys.modules)").split()
    assert [name for name in NOT_YET if name in loaded] == []


def test_an_app_alone_loads_no_storage() -> None:
    loaded = python("import sys, treadle; treadle.App('sqlite:///x.db'); print(*sys.modules)").split()
    assert "sqlite3" not in loaded
    assert "treadle.storages.sqlite" not in loaded


def test_a_worker_loads_nothing_that_is_only_shown(tmp_path: Path) -> None:
    found = python(
        "import asyncio, sys, treadle\n"
        f"app = treadle.App('sqlite:///{tmp_path}/t.db')\n"
        "async def serve():\n"
        "    async with app.worker(queues=['default'], children=False): pass\n"
        "asyncio.run(serve())\n"
        "print(*sys.modules)"
    )
    shown = {f"treadle.core.{name}" for name in ("view", "records", "series", "schedule_view", "explain")}
    assert {*found.split()} & {*shown, "click", "rich", "treadle.web"} == set()


def test_importing_treadle_is_little_work() -> None:
    """Counted in calls, as in tests/cli/test_root.py, which says why. The second: the first may have to compile."""
    assert [int(python(CALLS)) for _ in range(2)][-1] < 39_000
