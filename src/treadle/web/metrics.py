"""`/metrics` of the web process: what is the same from every pod, and what is its own."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..runtime.metrics import describe, family
from ..runtime.services.surveyor import Survey

if TYPE_CHECKING:
    from .dashboard import Dashboard


def exposition(web: Dashboard, survey: Survey) -> bytes:
    from prometheus_client import generate_latest

    return generate_latest(_Collector(web, survey))


class _Collector:
    def __init__(self, web: Dashboard, survey: Survey) -> None:
        self._web = web
        self._survey = survey

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        seen: Any = SimpleNamespace(surveyor=SimpleNamespace(survey=self._survey))
        for metric in describe()["shared"]:
            yield family(metric, metric.fill(seen))
        yield GaugeMetricFamily("treadle_web_streams", "Streams that are open.", value=self._web.hub.count)
        build = GaugeMetricFamily("treadle_web_info", "Always 1; the version of the dashboard.", labels=("version",))
        build.add_metric((__version__,), 1)
        yield build
