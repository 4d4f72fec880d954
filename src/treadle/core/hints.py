"""What people mean who know another system: a word of Celery, Dramatiq, RQ or Huey, and how Treadle says it.

Looked up when a call has failed already, by the code that words the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from .names import suggest

Place = Literal["@task", "using", "App", "Retry", "enqueue"]

_ATTEMPTS: Final = "retry=n + 1, or retry=Retry(max_attempts=n + 1); attempts count the first run too"
_CURVE: Final = "retry=Retry(base=…, factor=…, cap=…, jitter=…)"
_REST: Final = 'retry=Retry.fixed("30s")'
_CONTEXT: Final = "a first parameter `ctx: Context`, which the worker fills"
_LATER: Final = 'task.using(delay="10s").enqueue(…)'
_AT: Final = "task.using(at=datetime(…, tzinfo=UTC)).enqueue(…)"
_EXPIRES: Final = "a look at ctx.created_at in the task, and raise Cancel(…)"
_TIMEOUT: Final = 'timeout="30s", for each attempt'
_RESULT: Final = "; a result is kept with its job, and goes with it (retention of the queue)"
_LATE: Final = "; a job is finished after its run, always"
_URL: Final = 'App("sqlite:///jobs.db") or App("postgresql://…")'

# What an option of another system is called here, where it is an option of a task.
_OPTIONS: Final[Mapping[str, str]] = {
    "retries": _ATTEMPTS,
    "max_retries": _ATTEMPTS,
    "max_tries": _ATTEMPTS,
    "max_attempts": "retry=n, or retry=Retry(max_attempts=n)",
    "tries": "retry=n, or retry=Retry(max_attempts=n)",
    "attempts": "retry=n, or retry=Retry(max_attempts=n)",
    "autoretry_for": "retry=Retry(retry_on=(…,))",
    "retry_when": "retry=Retry(retry_on=(…,))",
    "dont_autoretry_for": "retry=Retry(give_up_on=(…,))",
    "throws": "retry=Retry(give_up_on=(…,))",
    "retry_backoff": _CURVE,
    "retry_backoff_max": _CURVE,
    "retry_jitter": _CURVE,
    "min_backoff": _CURVE,
    "max_backoff": _CURVE,
    "backoff": _CURVE,
    "default_retry_delay": _REST,
    "retry_delay": _REST,
    "bind": _CONTEXT,
    "context": _CONTEXT,
    "countdown": _LATER,
    "delay": _LATER,
    "eta": _AT,
    "at": _AT,
    "run_at": _AT,
    "expires": _EXPIRES,
    "expire": _EXPIRES,
    "ttl": _EXPIRES,
    "max_age": _EXPIRES,
    "time_limit": _TIMEOUT,
    "soft_time_limit": _TIMEOUT,
    "job_timeout": _TIMEOUT,
    "rate_limit": 'app.queue("mail", rate="10/m"), or ctx.limit in the task',
    "actor_name": "name=",
    "queue_name": "queue=",
    "routing_key": "queue=",
    "ignore_result": _RESULT,
    "store_results": _RESULT,
    "result_ttl": _RESULT,
    "acks_late": _LATE,
    "reject_on_worker_lost": _LATE,
    "serializer": "; arguments are stored as JSON",
    "lock": "unique=True, or app.lock in the task",
    "singleton": "unique=True",
    "crontab": '@app.cron("0 9 * * *") above @app.task',
    "within": "it beside batch=, or task.using(within=connection) for a job in your transaction",
    "link": "ctx.follow(task.bind(…)), or @task.follow_up",
    "link_error": '@task.follow_up("failed")',
    "job_id": 'task.using(id="…")',
    "task_id": 'task.using(id="…")',
    "headers": "task.using(meta={…})",
}
# Where another word is right than on a task.
_ELSEWHERE: Final[Mapping[Place, Mapping[str, str]]] = {
    "@task": {},
    "using": {
        "retries": "max_attempts=n + 1; attempts count the first run too",
        "max_retries": "max_attempts=n + 1; attempts count the first run too",
        "retry": "max_attempts=; a curve belongs to the task: @app.task(retry=Retry(…))",
        "countdown": 'delay="10s"',
        "eta": "at=datetime(…, tzinfo=UTC)",
        "run_at": "at=datetime(…, tzinfo=UTC)",
        "job_id": "id=",
        "task_id": "id=",
        "headers": "meta={…}",
    },
    "App": {
        "broker": _URL,
        "backend": _URL,
        "broker_url": _URL,
        "result_backend": _URL,
        "connection": _URL,
        "include": "app.include(registry); a task is known when its module was imported",
        "tasks": "app.include(registry); a task is known when its module was imported",
        "timeout": 'a timeout= of each task, or app.queue("mail", timeout=…)',
        "queue": "queues=[…], those that app.worker() serves; a task names its own: @app.task(queue=…)",
        "concurrency": "app.worker(slots=…)",
    },
    "Retry": {
        "retries": "max_attempts=n + 1; attempts count the first run too",
        "max_retries": "max_attempts=n + 1; attempts count the first run too",
        "attempts": "max_attempts=",
        "tries": "max_attempts=",
        "max_tries": "max_attempts=",
        "autoretry_for": "retry_on=(…,)",
        "throws": "give_up_on=(…,)",
        "delay": 'Retry.fixed("30s"), or base="30s"',
        "countdown": 'Retry.fixed("30s"), or base="30s"',
        "retry_delay": 'Retry.fixed("30s"), or base="30s"',
        "backoff": "base=, factor= and cap=",
        "min_backoff": "base=",
        "max_backoff": "cap=",
        "max_delay": "cap=",
        "exceptions": "retry_on=(…,)",
    },
    "enqueue": {"retry": "task.using(max_attempts=n).enqueue(…)"},
}
# What jobs are asked for with, beside their arguments: all of it goes through `using`.
_USING: Final = frozenset({"queue", "priority", "unique", "tags", "reason", "timeout", "max_attempts", "meta", "id"})

# A method of another system.
ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "task": {
        "delay": "await task.enqueue(…), or task.enqueue_sync(…)",
        "apply_async": "task.using(delay=…, queue=…).enqueue(…)",
        "apply": "task(…), which runs it here and now",
        "send": "await task.enqueue(…), or task.enqueue_sync(…)",
        "send_with_options": "task.using(delay=…, queue=…).enqueue(…)",
        "message": "task.bind(…)",
        "defer": "await task.enqueue(…), or task.enqueue_sync(…)",
        "kiq": "await task.enqueue(…)",
        "schedule": "task.using(delay=…).enqueue(…)",
        "call_local": "task(…), which runs it here and now",
        "signature": "task.bind(…)",
        "s": "task.bind(…)",
        "si": "task.bind(…)",
        "subtask": "task.bind(…)",
        "map": "app.enqueue_many(task.bind(each) for each in …)",
    },
    "app": {
        "send_task": 'app.enqueue("module.task", {"name": value})',
        "delay": "task.enqueue(…)",
        "actor": "@app.task",
        "job": "@app.task",
        "shared_task": "a Registry, which apps include",
        "periodic_task": '@app.cron("0 9 * * *") or @app.every("10m") above @app.task',
        "schedule": '@app.cron("0 9 * * *") or @app.every("10m") above @app.task',
        "conf": "App(…) and treadle.toml",
        "config_from_object": "App(…) and treadle.toml",
        "autodiscover_tasks": "import; a task is known when its module was imported",
        "control": "app.pods, app.queues and app.jobs",
        "run_worker": "app.worker()",
        "enqueue_in": "task.using(delay=…).enqueue(…)",
        "enqueue_at": "task.using(at=…).enqueue(…)",
    },
    "handle": {
        "get": "await handle.result(timeout=…), or handle.result_sync(…)",
        "wait": "await handle.result(timeout=…), or handle.result_sync(…)",
        "join": "await handle.result(timeout=…), or handle.result_sync(…)",
        "get_result": "await handle.result(timeout=…), or handle.result_sync(…)",
        "return_value": "await handle.result(timeout=…), or handle.result_sync(…)",
        "ready": "(await handle.status()).state",
        "state": "(await handle.status()).state",
        "successful": "(await handle.status()).state",
        "failed": "(await handle.status()).state",
        "get_status": "(await handle.status()).state",
        "refresh": "await handle.status()",
        "revoke": "await handle.cancel()",
        "abort": "await handle.cancel()",
        "delete": "await app.jobs.remove(handle.id)",
    },
    "ctx": {
        "retry": 'raise RetryAfter("10s")',
        "request": "ctx itself; ctx.job_id, ctx.attempt, ctx.deadline …",
        "retries": "ctx.attempt, which is 1 at first",
        "update_state": "ctx.progress(…)",
        "save_meta": "ctx.set_meta(…)",
        "id": "ctx.job_id",
        "is_aborted": "ctx.cancelled",
    },
}


def unknown_option(where: str, option: str, known: Iterable[str], *, at: Place) -> str:
    """The words of the error: what was given where, and what was probably meant.

    >>> unknown_option("task mail.send", "retires", ["retries_of_mine"], at="@task")
    "task mail.send has no option 'retires'"
    >>> unknown_option("task mail.send", "max_retries", [], at="Retry")
    "task mail.send has no option 'max_retries'; did you mean max_attempts=n + 1? (attempts count the first run too)"
    """
    said = f"{where} has no {'parameter' if at == 'enqueue' else 'option'} {option!r}"
    remedy = _ELSEWHERE[at].get(option) or _OPTIONS.get(option)
    if at == "enqueue":
        # A parameter of the user's own comes first; what is no argument at all is for `using`.
        using = f"task.using({option}=…).enqueue(…)" if option in _USING else None
        remedy = suggest(option, known) or using or remedy
    return _meant(said, remedy or suggest(option, known))


def no_attribute(kind: Literal["task", "app", "handle", "ctx"], what: str, name: str) -> str:
    """The words of an AttributeError: what has no such attribute, and what another system's users mean by it."""
    return _meant(f"{what} has no attribute {name!r}", ATTRIBUTES[kind].get(name))


def _meant(said: str, remedy: str | None) -> str:
    if remedy is None:
        return said
    word, _, why = remedy.partition("; ")
    if not word:
        return f"{said}, and needs none: {why}"
    return f"{said}; did you mean {word}?{f' ({why})' if why else ''}"
