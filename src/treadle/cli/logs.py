"""Log lines of a worker, on stderr: text for eyes, or one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from ..core.outcome_log import LOGGER, printable
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
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname.lower():<7} {record.name}: {record.getMessage()}"
        if record.name != LOGGER:  # those lines say it in words
            named = {name: value for name, value in vars(record).items() if name not in _ORDINARY and value is not None}
            line += "".join(f" {name}={printable(str(value))}" for name, value in named.items())
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


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
