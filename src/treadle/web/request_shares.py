"""Behind a proxy: how many requests of one forwarded address may be under way.

There all connections are the proxy's, and one address could have a slow request on each of them. So requests are
counted, by the address that the proxy tells (`proxied` has put it into the scope): see `core.share`.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ..client.client import new_id
from ..core.address import group_of
from ..core.share import Shares
from .access import HEADERS
from .plain import JSON
from .problem import Problem


class RequestShares:
    """Around the app of a server, inside `Proxied`."""

    def __init__(self, inner: ASGIApp, most: int) -> None:
        self._inner = inner
        self.shares = Shares(most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        client = scope.get("client")
        caller = group_of(client[0] if client else "")
        verdict = self.shares.take(caller)
        if verdict != "granted":
            await _refused(verdict == "full")(scope, receive, send)
            return
        try:
            await self._inner(scope, receive, send)
        finally:
            self.shares.give_back(caller)


def _refused(is_full: bool) -> ASGIApp:
    """Nothing of the request is looked at, not even its body: the connection goes with it."""
    problem = (
        Problem("unavailable", "too many requests are under way: try again")
        if is_full
        else Problem("rate_limited", "too many requests from this address are under way: wait")
    )
    headers = {**HEADERS, **problem.headers, "Cache-Control": "no-store", "Connection": "close"}
    return JSON(problem.as_json(new_id()), status_code=problem.status, headers=headers)
