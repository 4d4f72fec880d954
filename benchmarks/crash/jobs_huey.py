"""Huey on SQLite, as `huey_consumer` finds it."""

from __future__ import annotations

import importlib
import os
import sys

from huey import SqliteHuey

from . import marks

huey = SqliteHuey("crash", filename=os.environ["CRASH_FILE"], fsync=True, journal_mode="wal")


@huey.task(retries=3)
def act(kind: str, number: int) -> None:
    marks.act_in_thread(kind, number)


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "enqueue":
        # Here this module is __main__, and a job would be named so.
        jobs_huey = importlib.import_module("benchmarks.crash.jobs_huey")

        for number in range(int(rest[1])):
            jobs_huey.act(rest[0], number)
