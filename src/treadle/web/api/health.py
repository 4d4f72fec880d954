"""Health of the web process, outside `/api/v1`. Probes ask no storage: they tell what was last seen."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from starlette.responses import PlainTextResponse, Response

from ..plain import JSON
from ..routing import PUBLIC, Call, Routes

routes = Routes()


class Ready(Struct):
    ready: bool


@routes.api("GET", "/healthz", action=PUBLIC, base="", media="text/plain")
async def healthz(call: Call[None, None]) -> Response:
    """200 while the process lives and its loop answers."""
    return PlainTextResponse("ok\n")


@routes.api("GET", "/readyz", action=PUBLIC, base="", answer=Ready, problems=(503,))
async def readyz(call: Call[None, None]) -> Response:
    """200 only if the storage was reached lately, and no stop is under way. Without details: it is open to everyone."""
    ready = call.web.pulse.is_ready and not call.web.hub.closing.is_set()
    return JSON({"ready": ready}, status_code=200 if ready else 503)


@routes.api("GET", "/metrics", action="see", base="", media="text/plain")
async def metrics(call: Call[None, None]) -> Any:
    """What Prometheus reads: the cluster as the storage shows it."""
    from prometheus_client import CONTENT_TYPE_LATEST

    from ..metrics import exposition

    survey = await call.web.counts.get(("survey",), call.web.survey)
    return Response(exposition(call.web, survey), headers={"Content-Type": CONTENT_TYPE_LATEST})
