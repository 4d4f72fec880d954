"""`treadle worker`: serve queues, in this process or in several."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
from typing import NoReturn

import click
import msgspec

from ..config import Config, DeclaredQueue, address, worker_label
from ..core.errors import ConfigError
from . import target
from .command import LINE, Invocation, verb
from .errors import DONE
from .params import DURATION


@verb(
    "worker",
    "treadle worker -A shop.jobs:app -q mail:20,default",
    "treadle worker -q reports --processes 4 --log-format json",
    "treadle worker -q default --burst        # drain what is due, then end",
    "treadle worker -q default --health 127.0.0.1:9464",
    "treadle worker -q default --web          # with the dashboard, on 127.0.0.1:8181",
    "treadle worker --only-services           # leads: schedules, rescue, upkeep; runs no job",
)
@click.option(
    "-q",
    "--queues",
    metavar="LIST",
    help="What to serve, with slots: mail:20,default. A partition keeps its order with one slot in one worker: "
    "email:1,email__p1:1.",
)
@click.option("--slots", type=int, metavar="N", help="Slots of a queue that names no number. Default 50.")
@click.option("--pod-slots", type=int, metavar="N", help="Places over all queues, shared by their min and weight.")
@click.option("--processes", type=click.IntRange(1), default=1, metavar="N", help="Several processes, one parent.")
@click.option("--burst", is_flag=True, help="Drain what is due, then end.")
@click.option("--grace", type=DURATION, help="How long running jobs may take to end at a stop. Default 25s.")
@click.option(
    "--threads",
    type=int,
    metavar="N",
    help="How many `def` tasks run at once. Default: as many as the slots, up to 100.",
)
@click.option("--children", type=int, metavar="N", help='How many executor="process" tasks run at once.')
@click.option("--health", metavar="ADDR", help="Answer /healthz, /readyz and /metrics there: 127.0.0.1:9464.")
@click.option(
    "--web",
    is_flag=False,
    flag_value="",
    metavar="[ADDR]",
    help="Serve the dashboard too, by default on 127.0.0.1:8181; any other address needs a token file.",
)
@click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--log-format", metavar="FORMAT", help="text or json.")
@click.option("--log-jobs", is_flag=True, help="Log every start and success too; failures are logged anyway.")
@click.option(
    "--worker-version",
    metavar="TEXT",
    help="The version of your own code, for example 2026.11.3: Failures says what is new since it came.",
)
@click.option("--no-lead", is_flag=True, help="Never take the leader's duties.")
@click.option("--only-services", is_flag=True, help="Serve no queue: only lead, with the leader's duties.")
@click.option("--parent", type=int, hidden=True)
def worker(
    call: Invocation,
    processes: int,
    burst: bool,
    no_lead: bool,
    only_services: bool,
    log_jobs: bool,
    parent: int | None,
    web: str | None,
    **flags: object,
) -> int:
    """Serve queues until a signal comes.

    First signal: running jobs may end. Second: they are given back at once. Third: leave.
    """
    config = call.config(no_lead=no_lead or None, log_jobs=log_jobs or None, **flags)
    leads = not config.no_lead and "services" not in config.disable
    if only_services:
        _check_only_services(config, burst, leads)
        config = msgspec.structs.replace(config, queues=())
    elif not config.queues:
        known = ",".join(target.load_app(config).queues_of_tasks()) or "mail:20,default"
        raise ConfigError(f"no queues to serve: name them with -q {known}, TREADLE_QUEUES, or in treadle.toml")
    if "worker" in config.disable:
        call.out.say(f"the worker is switched off (disable, {config.sources['disable']})")
        return DONE
    if processes > 1 and web is not None:
        raise ConfigError("--web is for one process: beside several, run `treadle web`")
    if processes > 1:
        return _supervise(call, config, processes, burst)
    if parent is not None:
        from .supervisor import die_with

        die_with(parent)
    return _serve(call, config, burst, web, leads=leads)


def _check_only_services(config: Config, burst: bool, leads: bool) -> None:
    if config.sources.get("queues") == "--queues":
        raise click.UsageError("--only-services serves no queue: leave out -q")
    if burst:
        raise click.UsageError("--only-services runs no job, so there is nothing for --burst to drain")
    if not leads:
        raise ConfigError("--only-services is there to lead, and no_lead or disable = services forbids it")


def _serve(call: Invocation, config: Config, burst: bool, web: str | None, leads: bool) -> NoReturn:
    from ..runtime import loops
    from ..runtime.main import run_worker
    from . import logs

    app = target.load_app(config)
    loops.maker(config.loop)  # one that is missing is said before the log names a database that is never made
    logs.configure(config.log_level, config.log_format)
    if created := target.creation(app.url):
        logging.getLogger("treadle.main").info("%s", created)
    app.heed(config.queues)
    if web is not None and "web" not in config.disable:
        from .web import beside

        beside(call, app, config, web)
    version = config.worker_version or app.worker_version
    named = msgspec.structs.replace(config, worker_prefix=config.worker_prefix or app.name, worker_version=version)
    run_worker(
        app,
        queues={queue.name: _slots(queue, config) for queue in config.queues},
        burst=burst,
        leads=leads,
        label=functools.partial(worker_label, named),
        timing=config.timing,
        limits=config.limits,
        log_jobs=config.log_jobs,
        worker_version=version,
        loop=config.loop,
        health=None if config.health is None else address(config.health),
    )


def _slots(queue: DeclaredQueue, config: Config) -> int:
    return queue.slots if queue.slots is not None else config.limits.slots


def _supervise(call: Invocation, config: Config, processes: int, burst: bool) -> int:
    from .supervisor import Supervisor, environ_of, without_processes

    line = click.get_current_context().meta[LINE]
    args = [*without_processes(line), "--parent", str(os.getpid())]

    async def run() -> int:
        supervisor = Supervisor(
            [sys.executable, "-m", __package__ or "", *args],
            processes,
            environ=lambda number: environ_of(number, os.environ, config.worker_id, config.health),
            say=call.out.say,
            burst=burst,
        )
        return await supervisor.run()

    return asyncio.run(run())
