"""Health: `/healthz`, `/readyz` and `/metrics` of a worker, from a thread of its own.

Why a thread
------------
The loop may be blocked by a task, and that is when somebody wants to know. So the standard library's server runs beside
it. It asks nobody: no storage call, no connection, no wait for the loop. It tells what the loops last saw.

It is for machines on the same host or the same network: no TLS, no login, nothing of a job in it. It listens where it
is told, and by default on loopback.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from ..core import health
from ..core.errors import ConfigError
from ..core.health import Signs
from .services.surveyor import WANTED_FOR

if TYPE_CHECKING:
    from .pod import Pod

log = logging.getLogger("treadle.health")

PLAIN: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
SURVEY_PATIENCE: Final = 0.5  # so long does a scrape wait for the first survey in a minute; no other waits at all
SLOWEST_CLIENT: Final = 5.0


class Health:
    """The server. `watch` tells it of the pod, once there is one."""

    def __init__(self, host: str, port: int) -> None:
        self._pod: Pod | None = None
        self._surveying = threading.Lock()
        handler = type("Handler", (_Handler,), {"health": self})
        kind = type("Server", (_Server,), {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET})
        try:
            self._server = kind((host, port), handler)
        except (OSError, OverflowError) as error:
            shown = f"[{host}]" if ":" in host else host
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"health: cannot listen on {shown}:{port}: {reason}") from None
        self.host, self.port = self._server.server_address[:2]
        self._thread = threading.Thread(target=self._server.serve_forever, name="treadle-health", daemon=True)
        self._thread.start()
        log.info("health and metrics on http://%s:%s", f"[{host}]" if ":" in host else host, self.port)

    def watch(self, pod: Pod) -> None:
        self._pod = pod

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # Answers, each in a thread of its own ----------------------------------------------------------------------------

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        match path:
            case "/healthz":
                alive = health.is_alive(self._signs())
                return _status(alive), PLAIN, b"ok\n" if alive else b"dead\n"
            case "/readyz":
                return self._readiness()
            case "/metrics":
                return self._metrics()
            case _:
                return HTTPStatus.NOT_FOUND, PLAIN, b"there are /healthz, /readyz and /metrics\n"

    def _readiness(self) -> tuple[HTTPStatus, str, bytes]:
        signs = self._signs()
        reasons = health.not_ready(signs)
        told: dict[str, Any] = {"ready": not reasons, "reasons": reasons}
        if (pod := self._pod) is not None and signs.started:
            told |= {
                "pod": pod.label,
                "beat_age": round(signs.beat_age, 3),
                "storage_age": round(signs.storage_age, 3),
                "loop_lag": round(pod.heart.lag, 3),
            }
        return _status(not reasons), JSON, json.dumps(told).encode() + b"\n"

    def _metrics(self) -> tuple[HTTPStatus, str, bytes]:
        try:
            from prometheus_client import CONTENT_TYPE_LATEST

            from .metrics import Exposition
        except ModuleNotFoundError:
            return HTTPStatus.NOT_IMPLEMENTED, PLAIN, b"metrics need a library: pip install prometheus-client\n"
        pod = self._pod if self._signs().started else None
        if pod is not None:
            pod.surveyor.want()
            if pod.surveyor.age > WANTED_FOR:
                self._survey(pod)
        return HTTPStatus.OK, CONTENT_TYPE_LATEST, Exposition(pod).text()

    def _survey(self, pod: Pod) -> None:
        """So that who scrapes seldom, or tries it by hand, sees the queues as they are. A loop that is blocked is not
        waited for."""
        if not self._surveying.acquire(blocking=False):
            return
        try:
            survey = pod.surveyor.run_once()
            try:
                asyncio.run_coroutine_threadsafe(survey, pod.loop).result(SURVEY_PATIENCE)
            except RuntimeError:
                survey.close()  # the loop has just ended
            except Exception as error:
                log.debug("no survey yet: %s", error)
        finally:
            self._surveying.release()

    def _signs(self) -> Signs:
        return Signs(started=False) if self._pod is None else self._pod.signs()


def _status(is_well: bool) -> HTTPStatus:
    return HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request from %s was not answered", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    health: Health
    timeout = SLOWEST_CLIENT
    server_version = "treadle"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        begun = time.monotonic()
        try:
            status, kind, body = self.health.answer(path)
        except Exception:
            log.exception("%s could not be answered", path)
            status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, PLAIN, b"see the log\n"
        log.debug("%s: %d in %.3f s", path, status, time.monotonic() - begun)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass  # probes come every few seconds
