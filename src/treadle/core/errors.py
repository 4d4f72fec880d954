"""Every error that Treadle raises towards its users.

The signals that a task raises on purpose (`Snooze`, `Fail` …) are outcomes, not errors: they live in
`core.outcome` and do not derive from `TreadleError`. A message says what is wrong, which name, and what to do; it
never holds arguments, results or passwords.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TreadleError(Exception):
    """The base of every error that Treadle raises.

    >>> try:
    ...     app.jobs.get_sync("019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
    ... except TreadleError as error:
    ...     print(type(error).__name__)
    JobNotFound
    """


class ConfigError(TreadleError):
    """A wrong or unknown setting, an empty queue list, a task declared twice.

    >>> App("mysql://db/shop")
    Traceback (most recent call last):
    treadle.ConfigError: …
    """


class MissingExtra(ConfigError, ImportError):
    """A package that an optional part of Treadle needs is not installed: `treadle[postgres]`, `treadle[uvloop]` …

    Raised where that part is first used; an ImportError too, so that an optional import can be tried.

    >>> issubclass(MissingExtra, ImportError)
    True
    """

    def __init__(self, part: str, package: str, extra: str) -> None:
        super().__init__(f"{part} needs {package}: pip install 'treadle[{extra}]'")


class PayloadError(TreadleError):
    """An argument that cannot be stored, or does not fit its annotation. Raised at enqueue, before anything is written.

    `path` names the argument and the place inside it, such as `user.tags[3]`.

    >>> try:
    ...     app.enqueue_sync("send", {"user": {"tags": [1, {2}]}})
    ... except PayloadError as error:
    ...     print(error.path)
    user.tags[1]
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class PayloadTooLarge(PayloadError):
    """An argument or a whole payload above its limit.

    >>> app.enqueue_sync("elsewhere", {"text": "x" * 2_000_000})
    Traceback (most recent call last):
    treadle.PayloadTooLarge: …
    """


class BulkIncomplete(TreadleError):
    """`enqueue_many` of more than 16 MiB failed midway: the jobs of its first pieces are in. `handles` are theirs, in
    order; `__cause__` is what went wrong.

    >>> try:
    ...     handles = app.enqueue_many_sync(send.bind(user) for user in range(3))
    ... except BulkIncomplete as error:
    ...     print(f"{len(error.handles)} jobs are in, then: {error.__cause__}")
    """

    def __init__(self, message: str, handles: Sequence[Any]) -> None:
        super().__init__(message)
        self.handles = handles


class FilterError(TreadleError):
    """A filter that does not parse. `column` counts from 1.

    >>> try:
    ...     app.jobs.find_sync("state:failed quue:mail")
    ... except FilterError as error:
    ...     print(error.column)
    14
    """

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


class UnknownTask(TreadleError):
    """A task name that the caller's own code must know, and does not.

    >>> raise UnknownTask("shop.sned")
    Traceback (most recent call last):
    treadle.UnknownTask: shop.sned
    """


class UnknownLimit(TreadleError):
    """A rate limit that nobody has declared.

    >>> app.limits.take_sync("telex")
    Traceback (most recent call last):
    treadle.UnknownLimit: …
    """


class RateLimited(TreadleError):
    """`app.limits.take(…)`: the tokens were not there in time. `wait`: how many seconds it may take until they are.

    >>> app.limits.take_sync("slack")
    >>> try:
    ...     app.limits.take_sync("slack")
    ... except RateLimited as error:
    ...     print(error.wait > 0)
    True
    """

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class LockHeld(TreadleError):
    """`app.lock(…)`: somebody else holds the lock, and did not let go of it in time.

    >>> with app.lock("import"), app.lock("import"):
    ...     print("twice")
    Traceback (most recent call last):
    treadle.LockHeld: …
    """


class LockLost(TreadleError):
    """`Lock.renew()`: the lock ran out, and somebody else has taken it since. What it guarded must stop.

    >>> lock = app.lock("report", ttl="1s")
    >>> try:
    ...     with lock:
    ...         lock.renew_sync()
    ... except LockLost:
    ...     print("stop here")
    """


class JobNotFound(TreadleError):
    """No job has this id (any more).

    >>> app.jobs.get_sync("019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
    Traceback (most recent call last):
    treadle.JobNotFound: …
    """


class OperationNotFound(TreadleError):
    """No operation has this id (any more).

    >>> app.operations.get_sync("019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
    Traceback (most recent call last):
    treadle.OperationNotFound: …
    """


class ScheduleNotFound(TreadleError):
    """There is no schedule of this name.

    >>> app.schedules.get_sync("weekly")
    Traceback (most recent call last):
    treadle.ScheduleNotFound: …
    """


class PodNotFound(TreadleError):
    """No pod has this id or label (any more), or several have it.

    >>> app.pods.get_sync("worker-9")
    Traceback (most recent call last):
    treadle.PodNotFound: …
    """


class Conflict(TreadleError):
    """The state or version that the caller expected no longer holds, or a live job holds the unique key.

    >>> app.jobs.reschedule_sync(sent.id, delay="1h")
    Traceback (most recent call last):
    treadle.Conflict: …
    """


class JobFailed(TreadleError):
    """`Handle.result()` of a job that failed. `kind` says how its last attempt ended, `error` what it said.

    >>> try:
    ...     failed.result_sync(timeout="10s")
    ... except JobFailed as error:
    ...     print(error.kind, "·", error.error)
    error · ConnectionError: the far side is down
    """

    def __init__(self, message: str, kind: str, error: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.error = error


class JobCancelled(TreadleError):
    """`Handle.result()` of a job that was cancelled.

    >>> later = send.using(delay="1h").enqueue_sync(1)
    >>> later.cancel_sync()
    'cancelled'
    >>> later.result_sync()
    Traceback (most recent call last):
    treadle.JobCancelled: …
    """


class ClaimLost(TreadleError):
    """The run's claim is no longer its own: the job was rescued, or has ended. What it was about to write is not.

    >>> async def pay(ctx: Context) -> None:
    ...     try:
    ...         await ctx.checkpoint("page 4")
    ...     except ClaimLost:
    ...         return  # another run has the job
    """


class ResultNotKept(TreadleError):
    """`Handle.result()` of a job that succeeded, and whose result could not be stored: `reason` says why. Its effect
    has happened, so it is not run again.

    >>> try:
    ...     report = sent.result_sync()
    ... except ResultNotKept as error:
    ...     print(error.reason)  # such as: result cannot be stored: the type set is not JSON; give a sorted list
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ResultTimeout(TreadleError):
    """`Handle.result(timeout=…)`: the job did not end in time. It goes on.

    >>> send.using(delay="1h").enqueue_sync(1).result_sync(timeout=0.01)
    Traceback (most recent call last):
    treadle.ResultTimeout: …
    """


class AnswerNotFound(TreadleError):
    """Nobody waits, or has ever waited, for an answer with this token.

    >>> app.answers.give_sync("no-such-token", "yes")
    Traceback (most recent call last):
    treadle.AnswerNotFound: …
    """


class AnswerStale(TreadleError):
    """An answer for an attempt that is over: its job was retried, cancelled or has ended since.

    >>> def paid(token: str) -> str:
    ...     try:
    ...         return app.answers.give_sync(token, {"id": "r-1"})
    ...     except AnswerStale:
    ...         return "too late"
    """


class AnswerExpired(TreadleError):
    """`await ctx.answer(token)`: nobody answered in time. Not caught, it ends the attempt as `expired`.

    >>> async def approve(ctx: Context) -> str:
    ...     try:
    ...         return await ctx.answer(await ctx.answer_token("10s"))
    ...     except AnswerExpired:
    ...         return "nobody has answered"
    """


class AnswerFailed(TreadleError):
    """`await ctx.answer()`: whoever was asked says that it failed. `error` is what they said, mostly text.

    >>> async def pay(ctx: Context) -> str:
    ...     try:
    ...         return await ctx.answer()
    ...     except AnswerFailed as refused:
    ...         raise Fail(f"refused: {refused.error}") from None
    """

    def __init__(self, message: str, error: object = None) -> None:
        super().__init__(message)
        self.error = error


class StorageUnavailable(TreadleError):
    """The storage cannot be reached, or refuses to be used; the text says why.

    >>> def ask(user: int) -> str:
    ...     try:
    ...         return send.enqueue_sync(user).id
    ...     except StorageUnavailable:
    ...         return "please try again in a minute"
    """

    passing = False  # whether it may end by itself, so that a worker that starts just now does well to try again


class StorageTimeout(StorageUnavailable):
    """A storage call met its deadline. Its outcome is unknown; every mutation may be sent again.

    >>> def ask(user: int, id: str) -> str:
    ...     try:
    ...         return send.using(id=id).enqueue_sync(user).outcome
    ...     except StorageTimeout:
    ...         return ask(user, id)  # the same id: it is one job, however often it is sent
    """

    passing = True


class StorageDenied(StorageUnavailable):
    """The database does not permit this to the login of the storage: its role is for something else.

    >>> def pause(shown: App) -> None:  # such as the login of a viewer
    ...     try:
    ...         shown.queues.pause_sync("mail")
    ...     except StorageDenied:
    ...         print("ask somebody whose login may")
    """


class SchemaTooOld(TreadleError):
    """The storage's schema is older than this version needs; the text names the command that migrates it.

    >>> async def start() -> None:
    ...     try:
    ...         await app.open()
    ...     except SchemaTooOld as error:
    ...         print(error)  # … treadle db migrate
    """


class SchemaTooNew(TreadleError):
    """The storage's schema is newer than this version can use: upgrade Treadle.

    >>> async def start() -> None:
    ...     try:
    ...         await app.open()
    ...     except SchemaTooNew as error:
    ...         print(error)  # … upgrade Treadle here
    """


class ReadOnly(TreadleError):
    """A mutation on a storage that was opened for reading only.

    >>> def pause(shown: App) -> None:  # such as App("postgresql://…", read_only=True)
    ...     try:
    ...         shown.queues.pause_sync("mail")
    ...     except ReadOnly:
    ...         print("only for looking")
    """
