"""The statements. Short ones stand where they are used; the long ones are functions of the schema (0002_verbs.sql) or
files here. Numbered files are migrations.

Every statement names its tables as `treadle.job`; `Schema` puts the schema's real name in. The first parameter of a
statement with `{now}`, `{job}` or `{history}` is the time: null for the server's own.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from importlib import resources
from typing import Final

NOW: Final = "coalesce(to_timestamp($1::float8), statement_timestamp())"
CLOCK: Final = "coalesce(to_timestamp($1::float8), clock_timestamp())"

_SHARED: Final = (
    "job.args, job.format, job.priority, date_part('epoch', job.run_at), date_part('epoch', job.created_at), "
    "job.attempt, job.max_attempts, job.timeout, job.pinned, job.tags, job.meta, job.reason, job.unique_key, job.pod, "
    "job.slot, job.token, date_part('epoch', job.started_at)"
)
_ENTRIES: Final = (
    "case when job.error_count > 0 then (select json_agg(json_build_array(date_part('epoch', e.ended_at), e.entry) "
    "order by e.n)::text from treadle.job_error as e where e.job_id = job.id and {which}) end"
)
ALL_ERRORS: Final = _ENTRIES.replace("{which}", "e.n > job.error_count - 32")
LAST_ERROR: Final = _ENTRIES.replace("{which}", "e.n = job.error_count")

# What `rows.job_of` makes a Job of, from either table; {errors} is one of the two above.
JOB: Final = (
    "job.seq, job.id::text, job.task, job.queue, "
    f"case when job.state = 'ready' and job.run_at > {NOW} then 'scheduled' else job.state end, {_SHARED}, "
    "date_part('epoch', job.deadline), null::float8, job.crashes, job.snoozes, job.throttles, job.cancel_wanted, "
    "null::text, job.warning, job.kept, job.error_count, {errors}"
)
HISTORY: Final = (
    f"job.seq, job.id::text, job.task, job.queue, job.state, {_SHARED}, null::float8, "
    "date_part('epoch', job.finished_at), job.crashes, job.snoozes, job.throttles, false, job.result, job.warning, "
    "null::text, job.error_count, {errors}"
)
QUEUE: Final = (
    "name, version, paused, paused_by, date_part('epoch', paused_at), pause_reason, date_part('epoch', paused_until), "
    "max_workers, date_part('epoch', cool_until), cool_exponent, aging, timeout, settings"
)


def as_id(column: str) -> str:
    """A column of text as a job's id, null for what is none: one row with another text must not end the statement."""
    shape = "00000000-0000-0000-0000-000000000000"
    return f"case when translate({column}, '0123456789abcdef', '0000000000000000') = '{shape}' then {column}::uuid end"


class Schema:
    """The schema's name, checked and quoted, and statements with it put in."""

    def __init__(self, name: str) -> None:
        # Narrower than PostgreSQL's own rule: the name also stands inside string literals and in NOTIFY's channel.
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", name) or name.startswith("pg_"):
            raise ValueError(
                f"schema {name!r} is not allowed: 1 to 48 small letters, digits and _, not first a digit, and not pg_…"
            )
        self.name: Final = name
        self.channel: Final = f"treadle:{name}"
        self._texts: dict[str, str] = {}
        self._rewrite: Callable[[str], str] | None = None

    def read_by(self, rewrite: Callable[[str], str] | None) -> None:
        """Statements are written so from now on, for a login that may not read the tables themselves (`roles`)."""
        self._rewrite = rewrite
        self._texts = {}

    def __call__(self, text: str) -> str:
        found = self._texts.get(text)
        if found is None:
            if len(self._texts) > 1_000:  # filters of operators come in endless shapes
                self._texts.clear()
            found = self._texts[text] = self.put_in(text if self._rewrite is None else self._rewrite(text))
        return found

    def put_in(self, text: str) -> str:
        return text.replace("treadle.", f'"{self.name}".').replace("treadle_schema_name", self.name)


def call(function: str, types: str) -> str:
    """The statement that calls a function of the schema. The types keep drivers from guessing others."""
    places = ", ".join(f"${n}::{type.strip()}" for n, type in enumerate(types.split(","), 1))
    return f"select * from treadle.{function}({places})"


@functools.cache
def statement(name: str, errors: str = LAST_ERROR) -> str:
    """The text of one statement."""
    text = resources.files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8").strip()
    text = text.replace("{job}", JOB).replace("{history}", HISTORY).replace("{queue}", QUEUE)
    return text.replace("{errors}", errors).replace("{now}", NOW).replace("{clock}", CLOCK)


def roles(prefix: str) -> str:
    """Roles, whose names begin with `prefix`, and their grants, for a person to run."""
    text = resources.files(__name__).joinpath("roles.sql").read_text(encoding="utf-8")
    return re.sub(r"\btreadle_(owner|migrator|worker|enqueuer|viewer)\b", rf"{prefix}_\1", text)


@functools.cache
def migrations() -> tuple[tuple[str, str], ...]:
    """(name, text) of every migration, oldest first."""
    found = sorted(
        (file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for file in resources.files(__name__).iterdir()
        if file.name[:1].isdigit() and file.name.endswith(".sql")
    )
    return tuple(found)
