"""`treadle pods`: the worker processes that the storage knows."""

from __future__ import annotations

from datetime import UTC, datetime

from ..core import duration
from .command import Invocation, Verbs
from .target import with_storage

pods = Verbs("pods", help="The worker processes.", examples=("treadle pods list",))


@pods.verb("list", "treadle pods list", "treadle pods list --json | jq .label")
def list_(call: Invocation) -> None:
    """List the worker processes: the live ones, and those that vanished and are not yet forgotten."""
    from ..core.view import as_json

    found = with_storage(call.config(), lambda app: app.pods.list())
    if call.out.as_json:
        for pod in found:
            call.out.data(as_json(pod))
        return
    if not found:
        call.out.say("no pods: start one with `treadle worker`")
        return
    now = datetime.now(UTC)
    call.out.table(
        ("pod", "state", "leader", "queues", "running", "host", "pid", "up", "version"),
        [
            (
                pod.label,
                pod.state,
                "yes" if pod.leader else "",
                ", ".join(f"{name}:{slots}" for name, slots in pod.queues.items()),
                str(pod.running),
                pod.host,
                str(pod.pid),
                duration.words(max(0.0, round((now - pod.started_at).total_seconds()))),
                pod.version,
            )
            for pod in found
        ],
    )
