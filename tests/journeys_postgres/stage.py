"""The stage of a journey on PostgreSQL: a schema of its own on a real server with fsync on, worker processes, a load
that goes on whatever happens, and the same three witnesses as on SQLite (see `tests.journeys.stage`).

The history is written by triggers, in the transaction that makes the move, and read over a connection that Treadle
knows nothing of and that goes to the server directly, whatever is in between for the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
from psycopg.rows import dict_row

from tests.journeys.journey_app import act, newer_tasks, tasks
from tests.journeys.stage import PATIENCE, TERMINAL, Move, Stage, check_life, state_of
from tests.postgres_server import Server, a_schema
from treadle import App, StorageUnavailable

CALL = 3.0  # deadline of a storage call; the other timings are those of tests.journeys

_AUDIT = """
create table {schema}.journey_history (
    n bigint generated always as identity primary key, at float8, id text, was text, became text,
    old_token text, token text, old_attempt integer, attempt integer, crashes integer, old_pod text, pod text,
    tx xid8 default pg_current_xact_id()
);
create function {schema}.journey_live() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into {schema}.journey_history (at, id, became, attempt, crashes)
        values (date_part('epoch', clock_timestamp()), new.id, new.state, new.attempt, new.crashes);
    elsif tg_op = 'DELETE' then
        insert into {schema}.journey_history (at, id, was, old_token, old_attempt, old_pod)
        values (date_part('epoch', clock_timestamp()), old.id, old.state, old.token, old.attempt, old.pod);
    elsif old.state is distinct from new.state or old.token is distinct from new.token then
        insert into {schema}.journey_history (
            at, id, was, became, old_token, token, old_attempt, attempt, crashes, old_pod, pod
        )
        values (
            date_part('epoch', clock_timestamp()), new.id, old.state, new.state, old.token, new.token,
            old.attempt, new.attempt, new.crashes, old.pod, new.pod
        );
    end if;
    return null;
end
$$;
create function {schema}.journey_ended() returns trigger language plpgsql as $$
begin
    insert into {schema}.journey_history (at, id, became, token, attempt, crashes, pod)
    values (
        date_part('epoch', clock_timestamp()), new.id, new.state, new.token, new.attempt, new.crashes, new.pod
    );
    return null;
end
$$;
create table {schema}.journey_lost (id text, lease_until timestamptz, at timestamptz);
create function {schema}.journey_lost() returns trigger language plpgsql as $$
begin
    insert into {schema}.journey_lost values (new.id, old.lease_until, clock_timestamp());
    return null;
end
$$;
create trigger journey_lost after update on {schema}.pod
for each row when (new.lost and not old.lost) execute function {schema}.journey_lost();
create trigger journey_live after insert or update or delete on {schema}.job
for each row execute function {schema}.journey_live();
create trigger journey_ended after insert on {schema}.job_history
for each row execute function {schema}.journey_ended();
"""


class PostgresStage(Stage):
    def __init__(self, folder: Path, server: Server, url: str | None = None, *, audit: bool = True) -> None:
        super().__init__(folder)
        self.server = server
        self.schema = a_schema()
        self.url = url or server.url
        self.audited = audit
        self.figures: dict[str, float] = {}
        with mock.patch.dict(os.environ, {"TREADLE_SCHEMA": self.schema, "TREADLE_CALL": str(CALL)}):
            self.app = App(self.url)
        self.app.include(tasks)
        self.app.include(newer_tasks)
        self._witness: psycopg.Connection[dict[str, Any]] | None = None
        self._loads: list[Load] = []

    def open(self) -> None:
        self.app.open_sync()
        if self.audited:
            self.run(_AUDIT.format(schema=self.schema))

    def environ(self, **settings: float | str) -> dict[str, str]:
        url = settings.pop("url", self.url)
        return super().environ(**{"call": CALL, **settings}) | {
            "TREADLE_URL": str(url),
            "TREADLE_LOOP": "uvloop",
            "TREADLE_SCHEMA": self.schema,
        }

    def kill_server(self) -> None:
        """kill -9. Init may take a while to bury it, and its zombie would keep the next from starting."""
        pid = self.server.pid or 0
        self.server.kill()
        self.wait(lambda: state_of(pid) in ("", "Z"), "the server is dead")
        (self.server.data / "postmaster.pid").unlink(missing_ok=True)
        self.tally.kills += 1

    # The driver ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def load(
        self, what: str = "sleep", *, seconds: float = 0.02, count: int = 5, every: float = 0.05
    ) -> Iterator[Load]:
        """Enqueue a few jobs each moment, until the end of the block."""
        load = Load(self, count, every, what, seconds)
        try:
            yield load
        finally:
            load.stop()

    def try_to_enqueue(self, count: int, what: str, **more: Any) -> bool:
        """Enqueue jobs. What fails may have happened all the same, or may yet."""
        ids = [str(uuid.uuid4()) for _ in range(count)]
        try:
            self.enqueue(*(act.using(id=id).bind(what, **more) for id in ids))
        except StorageUnavailable:
            self.perhaps.update(ids)
            return False
        return True

    def enqueue_within(self, connection: object, count: int) -> None:
        handles = self.app.enqueue_many_sync([act.bind() for _ in range(count)], within=connection)
        self.known.update(handle.id for handle in handles)

    # Witnesses -------------------------------------------------------------------------------------------------------

    def ask(self, sql: str, *values: Any) -> list[Any]:
        """Rows as mappings; waits for a server that is away."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                if self._witness is None:
                    self._witness = self.connect()
                    self._witness.execute(f"set search_path = {self.schema}, public")  # type: ignore[call-overload]
                return self._witness.execute(sql, values).fetchall()  # type: ignore[call-overload]
            except psycopg.OperationalError:
                self._forget_witness()
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _forget_witness(self) -> None:
        witness, self._witness = self._witness, None
        if witness is not None:
            witness.close()

    def run(self, sql: str) -> None:
        with contextlib.closing(self.connect()) as db:
            db.execute(sql)  # type: ignore[call-overload]

    def connect(self) -> psycopg.Connection[dict[str, Any]]:
        """To the server itself, as an outsider."""
        return psycopg.connect(self.server.url, autocommit=True, row_factory=dict_row, application_name="journey")

    def jobs(self) -> dict[str, Any]:
        columns = "id::text, state, attempt, max_attempts, crashes, pod, token, finished_token, pinned, args"
        rows = self.ask(
            f"select {columns}, null::timestamptz as finished_at from job "
            f"union all select {columns}, finished_at from job_history"
        )
        assert len({row["id"] for row in rows}) == len(rows), "a job is there twice"
        return {row["id"]: row for row in rows}

    def job(self, id: str) -> Any:
        return self.jobs()[id]

    def errors(self, id: str) -> list[dict[str, Any]]:
        return [
            json.loads(row["entry"]) for row in self.ask("select entry from job_error where job_id = %s order by n", id)
        ]

    def history(self, *ids: str) -> list[Move]:
        """A job that ends is deleted in one table and inserted in the other: that is one move. And an enqueue that is
        repeated when its job has ended already inserts it and deletes it again, unseen by anybody: that is none."""
        moves: list[Move] = []
        leaving: dict[str, dict[str, Any]] = {}
        inserted: dict[tuple[str, Any], Move] = {}
        for row in self.ask("select * from journey_history order by n"):
            tx = row.pop("tx")
            if row["became"] is None:
                if (unseen := inserted.pop((row["id"], tx), None)) is not None:
                    moves.remove(unseen)
                else:
                    leaving[row["id"]] = row
                continue
            if row["became"] in TERMINAL and (left := leaving.pop(row["id"], None)):
                row |= {name: left[name] for name in ("was", "old_token", "old_attempt", "old_pod")}
            move = Move(**row)
            if move.was is None:
                inserted[move.id, tx] = move
            moves.append(move)
        assert not leaving, f"deleted: {leaving}"
        return [move for move in moves if not ids or move.id in ids]

    def pods_of(self, pid: int) -> list[str]:
        return [row["id"] for row in self.ask("select id, card from pod") if json.loads(row["card"])["pid"] == pid]

    def serving(self) -> list[int]:
        cards = [json.loads(row["card"]) for row in self.ask("select card from pod where not lost and not gone")]
        return sorted({card["pid"] for card in cards} & set(self.processes()))

    def held_by(self, pods: Sequence[str]) -> list[str]:
        rows = self.ask("select id::text from job where state = 'running' and pod = any (%s)", list(pods))
        return [row["id"] for row in rows]

    def lost_pods(self) -> int:
        return int(self.ask("select count(*) as n from pod where lost")[0]["n"])

    def sessions(self, **where: str) -> list[int]:
        """Treadle's sessions on the server, whose last statement or name has these words."""
        rows = self.ask("select * from pg_stat_activity where application_name like 'treadle%%'")
        return [row["pid"] for row in rows if all(words in row[name] for name, words in where.items())]

    def terminate(self, pids: Iterable[int]) -> int:
        return sum(row["done"] for pid in pids for row in self.ask("select pg_terminate_backend(%s) as done", pid))

    # Waiting ---------------------------------------------------------------------------------------------------------

    def _have_ended(self, ids: Sequence[str]) -> bool:
        # Every job that is there, also those of which nobody knows.
        return not self.ask("select 1 from job limit 1") if set(ids) >= self.known else self._ended(ids)

    def _ended(self, ids: Sequence[str]) -> bool:
        return not self.ask("select 1 from job where id = any (%s::uuid[]) limit 1", list(ids))

    def ended_since(self, at: float) -> int:
        """How many jobs have succeeded since then, by the clock on the wall."""
        return int(self.ask("select count(*) as n from job_history where finished_at > to_timestamp(%s)", at)[0]["n"])

    def catches_up(self, *, within: float) -> float:
        """Wait until all jobs have ended, after a fault; answers with how long that took."""
        took = self.drain(within=within)
        self.tally.recoveries.append(took)
        return took

    def resumes(self, what: str, *, within: float) -> float:
        """Under load: wait for the first finish after now, the end of a fault; answers with how long that took."""
        now = time.time()
        took = self.wait(lambda: self.ended_since(now), f"work goes on after {what}", within)
        self.tally.recoveries.append(took)
        return took

    def all_live(self) -> bool:
        return all(worker.lives for worker in self.workers)

    def report(self) -> str:
        rows = self.jobs().values()
        live = [row for row in rows if row["finished_at"] is None]
        lines = [f"states: {dict(Counter(row['state'] for row in rows))}"]
        lines += [
            f"  {row['id']} {row['state']} attempt {row['attempt']} crashes {row['crashes']} pod {row['pod']}"
            for row in live[:20]
        ]
        lines += [f"pod {row}" for row in self.ask("select id, lost, gone, swept, lease_until, beat_at from pod")]
        lines += [f"session {row}" for row in self.ask(
            "select pid, application_name, state, wait_event, left(query, 60) as query from pg_stat_activity "
            "where application_name <> ''"
        )]  # fmt: skip
        for worker in self.workers:
            lines.append(f"--- worker {worker.pid}, exit code {worker.process.poll()}")
            lines += worker.log.splitlines()[-40:]
        return "\n".join(lines)

    # The end ---------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.wait(lambda: not self.processes(), "no process is left behind", within=10)
        jobs, moves = self.jobs(), defaultdict[str, list[Move]](list)
        assert self.known <= jobs.keys(), f"lost: {self.known - jobs.keys()}"
        assert jobs.keys() <= self.known | self.perhaps, "ghosts: jobs that nobody enqueued"
        assert {job["state"] for job in jobs.values()} <= TERMINAL, self.report()
        if not self.audited:
            return
        for move in self.history():
            moves[move.id].append(move)
        early = self.ask("select id, lease_until, at from journey_lost where at < lease_until")
        assert not early, f"declared lost under a live lease: {early}"
        effects = {(each.id, each.token) for each in self.effects()}
        assert moves.keys() == jobs.keys()
        for id, job in jobs.items():
            check_life(id, job, moves[id])
            if job["state"] == "succeeded":
                assert (id, job["finished_token"]) in effects, f"{id} succeeded, but not under the accepted token"

    def close(self) -> None:
        try:
            super().close()
        finally:
            with contextlib.suppress(psycopg.Error):
                self.run(f"drop schema {self.schema} cascade")
            self._forget_witness()


class Load:
    """A thread that enqueues; the storage may be away, and what it could not enqueue it forgets."""

    def __init__(self, stage: PostgresStage, count: int, every: float, what: str, seconds: float) -> None:
        self._stage = stage
        self._ending = threading.Event()
        self.accepted = 0
        self.refused = 0
        self._thread = threading.Thread(target=self._run, args=(count, every, what, seconds), daemon=True)
        self._error: BaseException | None = None
        self._thread.start()

    def _run(self, count: int, every: float, what: str, seconds: float) -> None:
        try:
            while not self._ending.wait(every * random.uniform(0.5, 1.5)):
                if self._stage.try_to_enqueue(count, what, seconds=seconds):
                    self.accepted += count
                else:
                    self.refused += count
        except BaseException as error:
            self._error = error

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "an enqueue hangs"
        if self._error is not None:
            raise self._error
