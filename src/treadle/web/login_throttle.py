"""Whoever is wrong too often has to wait: `core.login_throttle`, for requests. By the group of addresses that a request
comes from, of which an IPv6 caller has a whole /64."""

from __future__ import annotations

from starlette.requests import Request

from ..core.address import group_of
from .problem import Problem


def caller(request: Request) -> str:
    return group_of(request.client.host if request.client else "")


def too_many(wait: float) -> Problem:
    return Problem(
        "rate_limited", "too many wrong tries: wait a minute", headers={"Retry-After": str(max(1, round(wait)))}
    )
