"""Treadle: durable background jobs. A job is a row in a database that you already have."""

__version__ = "0.1.0"

from .app import App
from .context import Call, Context, Handle
from .core.backoff import Retry
from .core.demand import Portion
from .core.errors import (
    ConfigError,
    Conflict,
    FilterError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LockHeld,
    LockLost,
    OperationNotFound,
    PayloadError,
    PayloadTooLarge,
    PodNotFound,
    RateLimited,
    ReadOnly,
    ResultTimeout,
    ScheduleNotFound,
    SchemaTooNew,
    SchemaTooOld,
    StorageTimeout,
    StorageUnavailable,
    TreadleError,
    UnknownLimit,
    UnknownTask,
)
from .core.outcome import Cancel, Fail, RetryAfter, Snooze, Throttle
from .core.partition import Partitions
from .core.records import AuditView, FailurePage, FailureView, OperationView, Preview
from .core.schedule_view import FireView, ScheduleView
from .core.series import EventView, PairSeries, Point, ReadingView, Series, Spread
from .core.unique import Unique
from .core.view import ErrorView, JobView, PodView, QueueView, TaskView
from .core.warnings import ClusterWarning
from .limits import LimitView, Lock, LockView
from .operators import JobPage
from .tasks import AsyncTask, Registry, SyncTask, Task

__all__ = [
    "App",
    "AsyncTask",
    "AuditView",
    "Call",
    "Cancel",
    "ClusterWarning",
    "ConfigError",
    "Conflict",
    "Context",
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
    "OperationNotFound",
    "OperationView",
    "PairSeries",
    "Partitions",
    "PayloadError",
    "PayloadTooLarge",
    "PodNotFound",
    "PodView",
    "Point",
    "Portion",
    "Preview",
    "QueueView",
    "RateLimited",
    "ReadOnly",
    "ReadingView",
    "Registry",
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
    "StorageTimeout",
    "StorageUnavailable",
    "SyncTask",
    "Task",
    "TaskView",
    "Throttle",
    "TreadleError",
    "Unique",
    "UnknownLimit",
    "UnknownTask",
    "__version__",
]
