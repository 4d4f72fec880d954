"""Treadle: durable background jobs. A job is a row in a database that you already have."""

__version__ = "0.1.0"

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .app import App
from .context.context import Call, Context, Handle
from .core.backoff import Retry
from .core.demand import Portion
from .core.errors import (
    AnswerExpired,
    AnswerFailed,
    AnswerNotFound,
    AnswerStale,
    BulkIncomplete,
    ClaimLost,
    ConfigError,
    Conflict,
    FilterError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LockHeld,
    LockLost,
    MissingExtra,
    OperationNotFound,
    PayloadError,
    PayloadTooLarge,
    PodNotFound,
    RateLimited,
    ReadOnly,
    ResultNotKept,
    ResultTimeout,
    ScheduleNotFound,
    SchemaTooNew,
    SchemaTooOld,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
    TreadleError,
    UnknownLimit,
    UnknownTask,
)
from .core.outcome import AnswerAgain, Cancel, Fail, RetryAfter, Snooze, Throttle, Wait
from .core.partition import Partitions
from .core.unique import Unique
from .middleware import Middleware, Next
from .tasks.batch import BatchContext
from .tasks.task import AsyncTask, BatchTask, OutsideTask, Pool, Registry, SyncTask, Task

if TYPE_CHECKING:
    from .core.compare import Comparison, Difference, PairChange
    from .core.depth import DepthPoint, DepthSeries, QueueDepths
    from .core.logline import LogView
    from .core.progress import ProgressView
    from .core.records import AuditView, DeployView, FailurePage, FailureView, OperationView, Preview
    from .core.schedule_view import FireView, ScheduleView
    from .core.series import EventView, PairSeries, Point, ReadingView, Series, Spread
    from .core.view import ErrorView, JobView, PodView, QueueView, SweepView, TaskView, WaitView
    from .core.warnings import ClusterWarning
    from .operate.jobs import JobPage
    from .operate.limits import LimitView
    from .operate.locks import Lock, LockView
    from .signing import BadSignature

__all__ = [
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
    "ClaimLost",
    "ClusterWarning",
    "Comparison",
    "ConfigError",
    "Conflict",
    "Context",
    "DeployView",
    "DepthPoint",
    "DepthSeries",
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
    "LimitView",
    "Lock",
    "LockHeld",
    "LockLost",
    "LockView",
    "LogView",
    "Middleware",
    "MissingExtra",
    "Next",
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
    "Unique",
    "UnknownLimit",
    "UnknownTask",
    "Wait",
    "WaitView",
    "__version__",
]

# What operators read. Each is loaded when somebody first names it: to make these classes takes longer than all that a
# process needs which only enqueues (docs/adr/0024-imports.md).
_LATER = {
    "core.compare": ("Comparison", "Difference", "PairChange"),
    "core.depth": ("DepthPoint", "DepthSeries", "QueueDepths"),
    "core.logline": ("LogView",),
    "core.progress": ("ProgressView",),
    "core.records": ("AuditView", "DeployView", "FailurePage", "FailureView", "OperationView", "Preview"),
    "core.schedule_view": ("FireView", "ScheduleView"),
    "core.series": ("EventView", "PairSeries", "Point", "ReadingView", "Series", "Spread"),
    "core.view": ("ErrorView", "JobView", "PodView", "QueueView", "SweepView", "TaskView", "WaitView"),
    "core.warnings": ("ClusterWarning",),
    "operate.jobs": ("JobPage",),
    "operate.limits": ("LimitView",),
    "operate.locks": ("Lock", "LockView"),
    "signing": ("BadSignature",),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
