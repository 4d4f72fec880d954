"""Treadle: durable background jobs. A job is a row in a database that you already have."""

__version__ = "0.1.0"

from .app import App
from .context import Call, Context, Handle
from .core.backoff import Retry
from .core.errors import (
    ConfigError,
    Conflict,
    FilterError,
    JobCancelled,
    JobFailed,
    JobNotFound,
    PayloadError,
    PayloadTooLarge,
    ReadOnly,
    ResultTimeout,
    SchemaTooNew,
    SchemaTooOld,
    StorageTimeout,
    StorageUnavailable,
    TreadleError,
    UnknownTask,
)
from .core.outcome import Cancel, Fail, RetryAfter, Snooze, Throttle
from .core.unique import Unique
from .core.view import ErrorView, JobView, PodView, QueueView
from .operators import JobPage
from .tasks import AsyncTask, Registry, SyncTask, Task

__all__ = [
    "App",
    "AsyncTask",
    "Call",
    "Cancel",
    "ConfigError",
    "Conflict",
    "Context",
    "ErrorView",
    "Fail",
    "FilterError",
    "Handle",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobPage",
    "JobView",
    "PayloadError",
    "PayloadTooLarge",
    "PodView",
    "QueueView",
    "ReadOnly",
    "Registry",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "SchemaTooNew",
    "SchemaTooOld",
    "Snooze",
    "StorageTimeout",
    "StorageUnavailable",
    "SyncTask",
    "Task",
    "Throttle",
    "TreadleError",
    "Unique",
    "UnknownTask",
    "__version__",
]
