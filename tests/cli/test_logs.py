from __future__ import annotations

import json
import logging
import sys

from treadle.cli.logs import JsonLines, TextLines


def a_record(**fields: object) -> logging.LogRecord:
    record = logging.makeLogRecord({"name": "treadle.pod", "levelno": 30, "levelname": "WARNING", "msg": "slow: %s"})
    record.args = ("mail",)
    record.created = 1_794_744_000.5
    vars(record).update(fields)
    return record


def test_a_json_line_keeps_what_was_put_there_on_purpose() -> None:
    assert json.loads(JsonLines().format(a_record(job_id="7"))) == {
        "at": "2026-11-15T12:00:00.500Z",
        "level": "warning",
        "logger": "treadle.pod",
        "message": "slow: mail",
        "job_id": "7",
    }


def test_a_text_line_names_it_too() -> None:
    line = TextLines().format(a_record(job_id="7", reason=None))
    assert line == "2026-11-15T12:00:00.500Z warning treadle.pod: slow: mail job_id=7"


def test_a_traceback_is_kept_and_json_stays_one_line() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        record = a_record(exc_info=sys.exc_info())
    assert "ValueError: no" in TextLines().format(record).splitlines()[-1]
    line = JsonLines().format(record)
    assert "\n" not in line
    assert "ValueError: no" in json.loads(line)["trace"]


PLANTED = "mail\n2026-01-01T00:00:00.000Z info    treadle.pod: all is well\x1b[2K\u202e\u2028x\x85y\U000e0041"


def test_what_a_job_wrote_can_neither_forge_a_line_nor_hide_in_one() -> None:
    try:
        raise ValueError(PLANTED)
    except ValueError:
        record = a_record(exc_info=sys.exc_info(), args=(PLANTED,), reason=PLANTED)
    first, *more = TextLines().format(record).split("\n")
    assert first.startswith("2026-11-15T12:00:00.500Z warning treadle.pod: slow: mail reason=mail\\n2026-01")
    assert more and all(each.startswith("    ") for each in more)
    assert all(each.isprintable() for each in (first, *more))
    line = JsonLines().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == f"slow: {PLANTED}"
    assert json.loads(line)["reason"] == PLANTED
    assert PLANTED in json.loads(line)["trace"]


def test_an_empty_message_is_a_line() -> None:
    assert TextLines().format(a_record(msg="", args=())).endswith("treadle.pod: ")
