"""Treadle: durable background jobs. A job is a row in a database that you already have."""

__version__ = "0.1.0"

from .app import App
from .batching import BatchContext
from .context import Call, Context, Handle
from .core.backoff import Retry
from .core.demand import Portion
from .core.errors import (
    AnswerExpired,
    AnswerFailed,
    AnswerNotFound,
    AnswerStale,
    ClaimLost,
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
from .core.logline import LogView
from .core.outcome import AnswerAgain, Cancel, Fail, RetryAfter, Snooze, Throttle, Wait
from .core.partition import Partitions
from .core.progress import ProgressView
from .core.records import AuditView, FailurePage, FailureView, OperationView, Preview
from .core.schedule_view import FireView, ScheduleView
from .core.series import EventView, PairSeries, Point, ReadingView, Series, Spread
from .core.unique import Unique
from .core.view import ErrorView, JobView, PodView, QueueView, TaskView, WaitView
from .core.warnings import ClusterWarning
from .limits import LimitView, Lock, LockView
from .middleware import Middleware, Next
from .operators import JobPage
from .signing import BadSignature
from .tasks import AsyncTask, BatchTask, OutsideTask, Pool, Registry, SyncTask, Task

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
    "Call",
    "Cancel",
    "ClaimLost",
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
    "LogView",
    "Middleware",
    "Next",
    "OperationNotFound",
    "OperationView",
    "OutsideTask",
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
    "Wait",
    "WaitView",
    "__version__",
]
