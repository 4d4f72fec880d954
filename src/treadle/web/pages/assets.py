"""The files that pages load: found once, served under names that hold a hash of all of them, from an exact list.

What comes from npm is in `static/lib`, put there by the build (hatch_build.py). A checkout without it serves working
pages all the same; `has` tells the templates what they may ask for.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent.parent / "static"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PREFIX: Final = "/static"


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    packed: bytes
    type: str


_COMMENT: Final = re.compile(rb"^[ \t]*(//.*|/\*\*.*\*/)$", re.MULTILINE)


def without_comments(script: bytes) -> bytes:
    """A script of ours as browsers get it. Lines that are only a comment are empty there, so that line numbers stay:
    comments are for whoever reads the source, and one byte in eight."""
    return _COMMENT.sub(b"", script)


@cache
def found() -> tuple[str, dict[str, Asset]]:
    """The hash that is part of every name, and the files by their names."""
    files: dict[str, Asset] = {}
    whole = hashlib.blake2b(digest_size=6)
    for path in sorted(HERE.rglob("*")):
        kind = TYPES.get(path.suffix)
        if kind is None or not path.is_file():
            continue
        name, body = path.relative_to(HERE).as_posix(), path.read_bytes()
        if path.suffix == ".js" and path.parent == HERE:
            body = without_comments(body)
        whole.update(name.encode() + b"\0" + body)
        files[name] = Asset(body, gzip.compress(body, 9, mtime=0), kind)
    return whole.hexdigest(), files


def path_of(name: str) -> str:
    """Modules find one another beside themselves: the hash is a folder."""
    return f"{PREFIX}/{found()[0]}/{name}"


def has(name: str) -> bool:
    return name in found()[1]
