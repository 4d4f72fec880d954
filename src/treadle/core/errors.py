"""Every error that Treadle raises towards its users.

The signals that a task raises on purpose (`Snooze`, `Fail` …) are outcomes, not errors: they live in
`core.outcome` and do not derive from `TreadleError`. A message says what is wrong, which name, and what to do; it
never holds arguments, results or passwords.
"""

from __future__ import annotations


class TreadleError(Exception):
    """The base of all errors below."""


class ConfigError(TreadleError):
    """A wrong or unknown setting, an empty queue list, a task declared twice."""


class MissingExtra(ConfigError, ImportError):
    """A package that an optional part of Treadle needs is not installed: `treadle[postgres]`, `treadle[uvloop]` …

    Raised where that part is first used; an ImportError too, so that an optional import can be tried.
    """

    def __init__(self, part: str, package: str, extra: str) -> None:
        super().__init__(f"{part} needs {package}: pip install 'treadle[{extra}]'")


class PayloadError(TreadleError):
    """An argument that cannot be stored. Raised at enqueue, before anything is written.

    `path` names the argument and the place inside it, such as `user.tags[3]`.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class PayloadTooLarge(PayloadError):
    """An argument or a whole payload above its limit."""


class FilterError(TreadleError):
    """A filter that does not parse. `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


class UnknownTask(TreadleError):
    """A task name that the caller's own code must know, and does not."""


class UnknownLimit(TreadleError):
    """A rate limit that nobody has declared."""


class RateLimited(TreadleError):
    """`app.limits.take(…)`: the tokens were not there in time. `wait`: how many seconds it may take until they are."""

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class LockHeld(TreadleError):
    """`app.lock(…)`: somebody else holds the lock, and did not let go of it in time."""


class LockLost(TreadleError):
    """`Lock.renew()`: the lock ran out, and somebody else has taken it since. What it guarded must stop."""


class JobNotFound(TreadleError):
    """No job has this id (any more)."""


class OperationNotFound(TreadleError):
    """No operation has this id (any more)."""


class ScheduleNotFound(TreadleError):
    """There is no schedule of this name."""


class PodNotFound(TreadleError):
    """No pod has this id or label (any more), or several have it."""


class Conflict(TreadleError):
    """The state or version that the caller expected no longer holds, or a live job holds the unique key."""


class JobFailed(TreadleError):
    """`Handle.result()` of a job that failed. `kind` says how its last attempt ended, `error` what it said."""

    def __init__(self, message: str, kind: str, error: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.error = error


class JobCancelled(TreadleError):
    """`Handle.result()` of a job that was cancelled."""


class ClaimLost(TreadleError):
    """The run's claim is no longer its own: the job was rescued, or has ended. What it was about to write is not."""


class ResultNotKept(TreadleError):
    """`Handle.result()` of a job that succeeded, and whose result could not be stored: `reason` says why. Its effect
    has happened, so it is not run again.

        try:
            report = await handle.result()
        except ResultNotKept as error:
            print(error.reason)  # such as: result cannot be stored: the type set is not JSON; give a sorted list
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ResultTimeout(TreadleError):
    """`Handle.result(timeout=…)`: the job did not end in time. It goes on."""


class AnswerNotFound(TreadleError):
    """Nobody waits, or has ever waited, for an answer with this token."""


class AnswerStale(TreadleError):
    """An answer for an attempt that is over: its job was retried, cancelled or has ended since."""


class AnswerExpired(TreadleError):
    """`await ctx.answer(token)`: nobody answered in time. Not caught, it ends the attempt as `expired`."""


class AnswerFailed(TreadleError):
    """`await ctx.answer()`: whoever was asked says that it failed. `error` is what they said, mostly text."""

    def __init__(self, message: str, error: object = None) -> None:
        super().__init__(message)
        self.error = error


class StorageUnavailable(TreadleError):
    """The storage cannot be reached, or refuses to be used; the text says why."""

    passing = False  # whether it may end by itself, so that a worker that starts just now does well to try again


class StorageTimeout(StorageUnavailable):
    """A storage call met its deadline. Its outcome is unknown; every mutation may be sent again."""

    passing = True


class SchemaTooOld(TreadleError):
    """The storage's schema is older than this version needs; the text names the command that migrates it."""


class SchemaTooNew(TreadleError):
    """The storage's schema is newer than this version can use: upgrade Treadle."""


class ReadOnly(TreadleError):
    """A mutation on a storage that was opened for reading only."""
