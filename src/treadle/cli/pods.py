"""`treadle pods`: the worker processes that the storage knows, and what can be asked of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from ..core import duration
from . import bulk, shared
from .command import Invocation, Verbs
from .confirm import confirm
from .params import DURATION
from .target import with_app, with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..core.view import PodView, SweepView
    from ..core.warnings import ClusterWarning

pods = Verbs(
    "pods",
    help="The worker processes. A pod is named by its label, its id, or the beginning of its id.",
    examples=("treadle pods list", "treadle pods quiet 3f9a", "treadle pods stacks 3f9a"),
)


@pods.verb("list", "treadle pods list", "treadle pods list --json | jq .label")
def list_(call: Invocation) -> None:
    """List the worker processes: the live ones, and those that vanished and are not yet forgotten.

    For each queue: how many jobs run, of how many places (its slots here, or its share of the queue's max_workers).
    """
    from ..core.view import as_json

    async def look(app: App) -> tuple[Sequence[PodView], Sequence[ClusterWarning]]:
        return await app.pods.list(), () if call.out.as_json else await app.warnings()

    found, warnings = with_storage(call.config(), look)
    if call.out.as_json:
        for pod in found:
            call.out.data(as_json(pod))
        return
    if not found:
        call.out.say("no pods: start one with `treadle worker`")
    else:
        call.out.table(
            ("pod", "state", "leader", "queues", "cpu", "rss", "lag", "host", "pid", "up", "version", "treadle"),
            [_row(pod, datetime.now(UTC)) for pod in found],
        )
    shared.warn(call, warnings)


@pods.verb("show", "treadle pods show 3f9a", "treadle pods show web-worker-1 --json")
@click.argument("pod")
def show(call: Invocation, pod: str) -> None:
    """Show one pod with all that it says of itself."""
    _print(call, with_storage(call.config(), lambda app: app.pods.get(pod)))


@pods.verb("deploys", "treadle pods deploys", "treadle pods deploys --json | jq .version")
def deploys(call: Invocation) -> None:
    """List the versions of your own code that workers have registered with, the newest first.

    A worker tells it by --worker-version, TREADLE_WORKER_VERSION, treadle.toml or App(worker_version=...).
    """
    found = with_storage(call.config(), lambda app: app.pods.deploys())
    if call.out.as_json:
        for each in found:
            call.out.data(bulk.as_json(each))
    elif found:
        call.out.table(
            ("version", "first worker", "last worker"),
            [(each.version, shared.moment(each.first_at), shared.moment(each.seen_at)) for each in found],
        )
    else:
        call.out.say("no worker has told its version: start one with --worker-version, or set TREADLE_WORKER_VERSION")


@pods.verb("quiet", "treadle pods quiet 3f9a        # before a deploy, or to look at it in peace")
@click.argument("pod")
@shared.confirming
def quiet(call: Invocation, pod: str, yes: bool, env: str | None) -> None:
    """Let a pod claim nothing more. What runs goes on; `treadle pods resume` ends it."""
    _order(
        call, f"quiet pod {pod}", lambda app: app.pods.quiet(pod, by=shared.operator()), "asked to be quiet", yes, env
    )


@pods.verb("resume", "treadle pods resume 3f9a")
@click.argument("pod")
@shared.confirming
def resume(call: Invocation, pod: str, yes: bool, env: str | None) -> None:
    """Let a quiet pod claim again."""
    _order(call, f"resume pod {pod}", lambda app: app.pods.serve(pod, by=shared.operator()), "asked to serve", yes, env)


@pods.verb("stop", "treadle pods stop 3f9a")
@click.argument("pod")
@shared.confirming
def stop(call: Invocation, pod: str, yes: bool, env: str | None) -> None:
    """End a pod as SIGTERM would: its jobs have their grace, and its process exits with code 0."""
    _order(call, f"stop pod {pod}", lambda app: app.pods.stop(pod, by=shared.operator()), "asked to stop", yes, env)


@pods.verb("stacks", "treadle pods stacks 3f9a", "treadle pods stacks 3f9a --timeout 15s --json")
@click.argument("pod")
@click.option("--timeout", type=DURATION, default=5.0, show_default="5s", help="How long to wait for its answer.")
def stacks(call: Invocation, pod: str, timeout: float) -> None:
    """Ask a pod where all its threads and asyncio tasks stand, and print it."""

    async def ask(app: App) -> tuple[PodView, str]:
        text = await app.pods.stacks(pod, timeout=timeout, by=shared.operator())
        return await app.pods.get(pod), text

    found, text = with_storage(call.config(), ask)
    if call.out.as_json:
        call.out.data({"id": found.id, "label": found.label, "stacks": text})
    else:
        call.out.line(text.rstrip("\n"))


@pods.verb("sweep", "treadle pods sweep", "treadle pods sweep -A shop.jobs:app --json | jq .rescued")
@shared.confirming
def sweep(call: Invocation, yes: bool, env: str | None) -> None:
    """Give the jobs of dead pods to the living now, and say which. The leader does so every few seconds by itself.

    A pod whose lease is over has one more beat (10 s) to speak: it may be slow, and not dead. Name the App (-A) where
    tasks declare follow-ups for a rescue.
    """
    from ..core.view import as_json

    config = call.config()
    if config.production or env is not None:
        confirm(call.out, config, "sweep up after dead pods", yes=yes, env=env)
    # Each rescue has its line in the log of a worker; here the report says it all.
    logging.getLogger("treadle.rescuer").setLevel(logging.ERROR)

    async def work(app: App) -> SweepView:
        swept = await app.pods.sweep()
        if swept.rescued or swept.waits:
            detail = f"{swept.rescued} jobs rescued, {swept.waits} waits ended"
            await app.audit.note("pods.sweep", "pods", by=shared.operator(), detail=detail)
        return swept

    swept = with_app(config, work) if config.is_set("app") else with_storage(config, work)
    if call.out.as_json:
        call.out.data(as_json(swept))
        return
    for label, count in sorted(swept.pods.items()):
        call.out.line(f"{label}  {shared.many(count)} left behind")
    for queue, counts in sorted(swept.queues.items()):
        call.out.line(f"{queue}  {', '.join(f'{count:,} {why}' for why, count in sorted(counts.items()))}")
    call.out.say(f"{shared.many(swept.rescued)} of dead pods, {swept.waits:,} waits without an answer")


def _order(
    call: Invocation, what: str, work: Callable[[App], Awaitable[PodView]], said: str, yes: bool, env: str | None
) -> None:
    config = call.config()
    if config.production or env is not None:
        confirm(call.out, config, what, yes=yes, env=env)
    pod = with_storage(config, work)
    if call.out.as_json:
        _print(call, pod)
    else:
        call.out.line(f"{pod.label}  {said}")


def _print(call: Invocation, pod: PodView) -> None:
    from ..core.view import as_json

    if call.out.as_json:
        call.out.data(as_json(pod))
    else:
        call.out.fields((field, _plain(value)) for field, value in as_json(pod).items())


def _row(pod: PodView, now: datetime) -> tuple[str, ...]:
    up = max(0.0, (now - pod.started_at).total_seconds())
    return (
        pod.label,
        pod.state,
        "yes" if pod.leader else "",
        ", ".join(f"{name} {pod.runs.get(name, 0)}/{_places(pod, name)}" for name in pod.queues) or "only services",
        f"{pod.cpu_seconds / up:.0%}" if up >= 1 and pod.rss_bytes else "",
        f"{pod.rss_bytes / (1 << 20):.0f} MiB" if pod.rss_bytes else "",
        duration.words(round(pod.loop_lag, 3)) if pod.rss_bytes else "",
        pod.host,
        str(pod.pid),
        duration.words(round(up)),
        pod.worker_version,
        pod.version,
    )


def _places(pod: PodView, queue: str) -> int:
    return min(pod.queues[queue], pod.shares.get(queue, pod.queues[queue]))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {each}" for name, each in value.items())  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
