"""Treadle on PostgreSQL, at its defaults."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from .postgres import URL, PostgresPeer
from .treadle_sqlite import TreadleProducer, TreadleSQLite


class TreadlePostgres(PostgresPeer):
    name = "treadle-postgres"
    title = "Treadle on PostgreSQL"
    module = "treadle"
    left = "select count(*) from treadle.job"
    does = PostgresPeer.does | {
        "drain-sqlite",
        "drain-million",
        "drain-scheduled",
        "drain-finished",
        "drain-snapshot",
        "idle-50",
    }

    def settings(self) -> dict[str, str]:
        return {
            "version": f"{metadata.version('treadle')}, asyncpg {metadata.version('asyncpg')}",
            "worker": "`treadle worker -q default:SLOTS --log-level warning`, one process",
            "producer": "`enqueue_many`; `enqueue`, which shares statements by itself, over one connection",
            "job": "async def, no-op",
        }

    def environ(self, place: Path) -> dict[str, str]:
        own = super().environ(place)
        return own | {"TREADLE_URL": own[URL]}

    def create(self, place: Path) -> None:
        from treadle import App

        async def open_once() -> None:
            async with App(os.environ[URL]):
                pass

        asyncio.run(open_once())

    def worker(self, queues: dict[str, int]) -> list[str]:
        return TreadleSQLite().worker(queues)

    def ready(self, jobs: int) -> str:
        """A statement that writes so many jobs that are due, as `enqueue_many` would."""
        return f"""
            insert into treadle.job (id, queue, task, args, run_at, created_at)
            select
                ('018f' || lpad(to_hex(n / 65536), 4, '0') || '-' || lpad(to_hex(n % 65536), 4, '0')
                    || '-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
                'default', 'noop', '{{"number":' || n || '}}',
                now() - interval '1 hour' + n * interval '1 millisecond', now() - interval '1 hour'
            from generate_series(1, {jobs}) as n
        """

    def scheduled(self, jobs: int) -> str:
        """The same for jobs that are due tomorrow."""
        return self.ready(jobs).replace("now() - interval '1 hour' + n", "now() + interval '1 day' + n")

    def finished(self, jobs: int) -> str:
        """The same for jobs that have ended: they are in the history."""
        return f"""
            insert into treadle.job_history (
                seq, id, queue, task, args, run_at, created_at, started_at, finished_at, priority, format, pinned,
                attempt, crashes, snoozes, throttles, error_count, state, pod, slot, token, finished_token
            )
            select
                -n,
                ('018e' || lpad(to_hex(n / 65536), 4, '0') || '-' || lpad(to_hex(n % 65536), 4, '0')
                    || '-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
                'default', 'noop', '{{"number":' || n || '}}', past, past, past, past + interval '1 millisecond', 0, 1,
                false, 1, 0, 0, 0, 0, 'succeeded', 'pod', 'slot', 'token', 'token'
            from generate_series(1, {jobs}) as n,
                lateral (select now() - interval '1 hour' + n * interval '1 millisecond') as at (past)
        """

    @contextlib.contextmanager
    def producer(self) -> Iterator[TreadleProducer]:
        with asyncio.Runner() as runner, TreadleProducer(runner) as producer:
            yield producer


peer = TreadlePostgres()
