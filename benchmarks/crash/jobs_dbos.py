"""DBOS Transact without its paid Conductor. At start a process recovers what is pending under its own executor id.

Default: the id that every process has unless told otherwise. Fast: an id of its own for each, as the documentation asks
of several processes; nothing else can be set.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid

from dbos import DBOS, DBOSClient

from . import marks

URL = os.environ["BENCH_PG_URL"]


@DBOS.workflow(name="act")
def act(kind: str, number: int) -> None:
    marks.act_in_thread(kind, number)


def launch() -> None:
    own = {"executor_id": uuid.uuid4().hex} if marks.is_fast() else {}
    DBOS(
        config={
            "name": "crash",
            "system_database_url": URL,
            "application_version": "1",
            "run_admin_server": False,
            **own,
        }
    )
    DBOS.launch()
    DBOS.register_queue("default", worker_concurrency=4)


def main(verb: str, *rest: str) -> None:
    if verb == "install":
        launch()
        DBOS.destroy()
    elif verb == "work":
        launch()
        threading.Event().wait()
    else:
        client = DBOSClient(system_database_url=URL)
        for number in range(int(rest[1])):
            client.enqueue({"queue_name": "default", "workflow_name": "act", "app_version": "1"}, rest[0], number)


if __name__ == "__main__":
    main(*sys.argv[1:])
