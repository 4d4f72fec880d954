"""How the path of a request is written into a log: without credentials, on one line.

A path may hold one: the token of an outside answer is its last part. Routes that take it say so, and are told by their
template. But the same token is in the path of a wrong method, of a trailing slash, of another case or encoding, for
which no route is declared. So of a path without a route only those parts are told that are words of declared routes;
whatever else stands there may be anything. And of any path, a part that looks like a token is left out.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

LEFT_OUT: Final = "*"
LONGEST: Final = 200
# What `secrets.token_urlsafe(32)` makes. Names have mostly no capitals among digits; ids are shorter, all lower case.
_TOKEN: Final = re.compile(r"(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])(?=[^0-9]*[0-9])[A-Za-z0-9_-]{40,}")


def of_route(path: str) -> str:
    """A path for which there is a route that takes no credential.

    >>> of_route("/api/v1/jobs/019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
    '/api/v1/jobs/019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11'
    """
    return clean("/".join(LEFT_OUT if _TOKEN.search(part) else part for part in path.split("/")))


def of_none(path: str, words: Container[str]) -> str:
    """A path for which there is none: `words` are the fixed parts of those that are declared.

    >>> of_none("/api/v1/answers/s3cr3t/", {"api", "v1", "answers"})
    '/api/v1/answers/*/'
    """
    return clean("/".join(part if not part or part in words else LEFT_OUT for part in path.split("/")))


def clean(text: str) -> str:
    """Nothing that could begin a line of its own, or colour one."""
    return ascii(text[:LONGEST])[1:-1]
