"""A path that a request names as the place to go to next: a page of this dashboard, and nothing else.

What a browser makes of a path is decided here before it sees it: `//host` and `/\\host` are other hosts for it, and
`..` leads out of the prefix under which the dashboard is mounted.
"""

from __future__ import annotations

import re
from typing import Final

HOME: Final = "/"
_DOTS: Final = re.compile(r"(?:\.|%2e){1,2}", re.IGNORECASE)


def local(path: str) -> str:
    """The path with its query, below the mount point; `/` in the place of whatever could lead elsewhere.

    >>> local("/jobs?filter=state:failed queue:mail")
    '/jobs?filter=state:failed queue:mail'
    >>> local("//evil.example")
    '/'
    """
    if not path.startswith("/") or path.startswith("//") or "\\" in path.partition("?")[0] or not path.isprintable():
        return HOME
    segments = path.partition("?")[0].partition("#")[0].split("/")
    return HOME if any(_DOTS.fullmatch(each) for each in segments) else path
