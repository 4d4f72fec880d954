"""Tracebacks for reading: the frames of the user's own code stand open, those of libraries are folded together."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

HEAD: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'^\s*(?:\|\s*)*File "(?P<path>.*)", line (?P<line>\d+)(?:, in (?P<name>.*))?$')
_LIBRARY: Final = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "<frozen ",
    "/treadle/runtime/",
    "/treadle/executors/",
)


class FrameLine(Struct):
    """One frame: where, and the code that stands there."""

    head: str
    code: str


class Piece(Struct):
    """A run of frames of the same kind, or a line that is none."""

    kind: Literal["own", "library", "line", "error"]
    frames: list[FrameLine]
    text: str = ""


def pieces(trace: str) -> list[Piece]:
    """In the order of the traceback. A line without an indent that follows frames is the error itself."""
    found: list[Piece] = []
    for kind, head, code in _lines(trace.splitlines()):
        if kind in ("line", "error"):
            found.append(Piece(kind, [], head))
        elif found and found[-1].kind == kind:
            found[-1].frames.append(FrameLine(head, code))
        else:
            found.append(Piece(kind, [FrameLine(head, code)]))
    return found


def _lines(lines: Iterable[str]) -> Iterable[tuple[Literal["own", "library", "line", "error"], str, str]]:
    frame: tuple[Literal["own", "library"], str] | None = None
    code: list[str] = []
    for line in lines:
        match = _FRAME.match(line)
        if match is None and frame is not None and line.startswith("    "):
            code.append(line)
            continue
        if frame is not None:
            yield frame[0], frame[1], textwrap.dedent("\n".join(code))
            frame, code = None, []
        if match is not None:
            kind: Literal["own", "library"] = "library" if any(each in match["path"] for each in _LIBRARY) else "own"
            frame = kind, f"{match['path']}:{match['line']}" + (f"  {match['name']}" if match["name"] else "")
        elif line.strip() and line != HEAD:  # where it begins is plain to see
            is_error = not line.startswith((" ", "Traceback", "During handling", "The above exception"))
            yield "error" if is_error else "line", line, ""
    if frame is not None:
        yield frame[0], frame[1], textwrap.dedent("\n".join(code))
