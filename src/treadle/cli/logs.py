"""Log lines of a worker, on stderr: text for eyes, or one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from ..core.outcome_log import LOGGER
from ..core.text import visible, visible_lines
from ..trace import mask

# What every record has. All else was put there on purpose (job_id, task, queue …), and is kept.
_ORDINARY: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: value for name, value in vars(record).items() if name not in _ORDINARY})
        if trace := _trace(self, record):
            line["trace"] = trace
        return visible(json.dumps(line, ensure_ascii=False, default=str))  # the same JSON: its escapes are JSON's own


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # A message of several lines is set in from its second: no line of it can be taken for another record.
        first, *more = visible_lines(record.getMessage()).splitlines() or [""]
        line = f"{_moment(record)} {record.levelname.lower():<7} {visible(record.name)}: {first}"
        if record.name != LOGGER:  # those lines say it in words
            named = {name: value for name, value in vars(record).items() if name not in _ORDINARY and value is not None}
            line += "".join(f" {name}={visible(str(value))}" for name, value in named.items())
        more += visible_lines(_trace(self, record)).splitlines()
        return "\n".join([line, *(each if each.startswith("    ") else f"    {each}" for each in more)])


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info:
        return mask(formatter.formatException(record.exc_info))
    return record.exc_text or ""  # of a job: kept without its exception, and masked when it was


def configure(level: str, format: str) -> None:
    """Our own loggers at this level, everybody else's from warning on; an app that set up logging itself keeps it."""
    root = logging.getLogger()
    if not root.handlers:
        lines = logging.StreamHandler(sys.stderr)
        lines.setFormatter(JsonLines() if format == "json" else TextLines())
        root.addHandler(lines)
    logging.getLogger("treadle").setLevel(level.upper())


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
