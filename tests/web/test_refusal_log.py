"""Refused requests in the log: ten of a kind a minute, then their number."""

from __future__ import annotations

import logging

import pytest

from treadle import App
from treadle.core.outcome_log import MOST_LINES
from treadle.runtime.line_throttle import LineThrottle
from treadle.web import Dashboard, dashboard

from .world import SAME, client, who

pytestmark = pytest.mark.anyio


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "treadle.web"]


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({}, 401, "log in first"),
        ({"X-Role": "viewer"}, 403, "may not do this"),
        ({"X-Role": "admin", "Sec-Fetch-Site": "cross-site"}, 403, "another site"),
        ({"X-Role": "admin", "Host": "evil.example"}, 421, "this host name"),
        ({"X-Role": "admin", "Content-Length": "3000000"}, 413, "larger than"),
    ],
)
async def test_refused_requests_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, headers: dict[str, str], status: int, words: str
) -> None:
    app = App("memory://")
    web = Dashboard(app, access=who, pages=False)
    now = 100.0
    web._refused = LineThrottle(dashboard.log, clock=lambda: now)
    async with app, client(web) as http:
        for _ in range(MOST_LINES + 15):
            answer = await http.post("/api/v1/queues/x/pause", headers={**SAME, **headers}, content=b"")
            assert answer.status_code == status
        lines = told(caplog)
        assert len(lines) == MOST_LINES and all(words in each and "refused for" in each for each in lines)
        now += 61
        await http.post("/api/v1/queues/x/pause", headers={**SAME, **headers}, content=b"")
        number, again = told(caplog)[MOST_LINES:]
        assert number.startswith("15 more like this within a minute, the last one: request ") and words in number
        assert words in again and "more like this" not in again
    await web.close()


async def test_each_kind_is_counted_apart_and_the_rest_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory://")
    web = Dashboard(app, access=who, pages=False)
    async with app, client(web) as http:
        for _ in range(MOST_LINES + 3):
            await http.get("/api/v1/queues")
        await http.get("/api/v1/queues", headers={"Host": "evil.example"})
        assert ["this host name" in each for each in told(caplog)] == [False] * MOST_LINES + [True]
    await web.close()
    assert told(caplog)[-1].startswith("3 more like this within a minute")


async def test_errors_of_our_own_do_not_fill_the_log_either(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("memory://")
    web = Dashboard(app, access=who, pages=False)

    async def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(web.reads.queues, "list", broken)
    async with app, client(web) as http:
        for _ in range(MOST_LINES + 5):
            assert (await http.get("/api/v1/queues", headers={"X-Role": "admin"})).status_code == 500
    records = [each for each in caplog.records if each.name == "treadle.web"]
    assert len(records) == MOST_LINES
    assert all(each.levelno == logging.ERROR and each.exc_info for each in records)  # with what went wrong
    await web.close()
    assert told(caplog)[-1].startswith("5 more like this")
