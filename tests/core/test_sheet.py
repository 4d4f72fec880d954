from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core import compare, series, sheet
from treadle.core.text import visible

from .test_compare import HERE, NOON, THERE, ran

FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\u00a0=1", "＝1", "\n@x")


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_is_taken_for_a_formula(text: str) -> None:
    assert sheet.safe(text) == "'" + text


def test_plain_texts_and_numbers_stay() -> None:
    assert [sheet.cell(each) for each in ("a=b", "", "x-1", "'=1")] == ["a=b", "", "x-1", "'=1"]
    assert sheet.line([None, True, False, -3, -0.5, "x"]) == ",true,false,-3,-0.5,x\r\n"
    assert sheet.cell(datetime(2026, 11, 16, tzinfo=UTC)) == "2026-11-16T00:00:00.000Z"
    assert sheet.cell({"n": [1, "ü"]}) == '{"n":[1,"ü"]}'


@given(st.lists(st.text(), min_size=1))
def test_what_is_written_is_read_again(texts: list[str]) -> None:
    (found,) = read(sheet.line(texts)) or [[""]]
    assert [each.removeprefix("'") for each in found] == [visible(each.removeprefix("'")) for each in texts]
    assert not any(each[:1] in ("=", "+", "-", "@") for each in found)


def test_nothing_in_a_sheet_controls_or_turns_and_a_record_is_one_line() -> None:
    planted = "pay\u202efdp.exe\x1b[2J\r\n'=1,ok\u2028\x85\U000e0041\ud800"
    row = sheet.line([planted, {"k": planted[:-1]}, [planted[:-1]], "ok"])
    assert row.endswith("\r\n")
    assert len(row.splitlines()) == 1
    assert row[:-2].isprintable()
    ((text, mapping, several, ok),) = read(row)
    assert text == "pay\\u202efdp.exe\\u001b[2J\\r\\n'=1,ok\\u2028\\u0085\\udb40\\udc41\\ud800"
    assert json.loads(mapping) == {"k": planted[:-1]}
    assert json.loads(several) == [planted[:-1]]
    assert ok == "ok"


def test_a_job() -> None:
    found = {
        "id": "j",
        "state": "failed",
        "task": "=evil()",
        "priority": -5,
        "tags": ["vip", "eu"],
        "started_at": "2026-11-16T08:00:00.000Z",
        "finished_at": "2026-11-16T08:00:01.500Z",
        "error": {"kind": "error", "type": "Timeout", "message": "-no-"},
        "args": {"secret": 1},
    }
    row = dict(zip(sheet.JOB, sheet.job(found, payload=False), strict=True))
    assert (row["seconds"], row["tags"], row["error_type"], row["priority"]) == (1.5, "vip eu", "Timeout", -5)
    assert "secret" not in sheet.line(sheet.job(found, payload=False))
    whole = sheet.job(found, payload=True)
    assert dict(zip((*sheet.JOB, *sheet.PAYLOAD), whole, strict=True))["args"] == {"secret": 1}
    (line,) = read(sheet.line(whole))
    assert line[2] == "'=evil()"


def test_how_long_a_run_took_is_left_out_where_it_is_not_known() -> None:
    def seconds(**found: object) -> object:
        return dict(zip(sheet.JOB, sheet.job(found, payload=False), strict=True))["seconds"]

    assert seconds() is None
    assert seconds(started_at="2026-11-16T08:00:01.000Z") is None
    assert seconds(started_at="2026-11-16T08:00:01.000Z", finished_at="2026-11-16T08:00:00.000Z") is None


def test_timings() -> None:
    rows = [ran(NOON - 60, bad=5), ran(NOON - 60, task="idle", runs=0)]
    pairs = {pair.task: sheet.timing(pair) for pair in series.by_pair(rows, NOON - 3600, NOON, 60.0)}
    found = dict(zip(sheet.TIMING, pairs["send"], strict=True))
    assert (found["runs"], found["bad"], found["bad_share"]) == (100, 5, 0.05)
    assert found["seconds"] == pytest.approx(100, rel=0.1)
    assert dict(zip(sheet.TIMING, pairs["idle"], strict=True))["bad_share"] is None


def test_a_comparison() -> None:
    (row,) = sheet.compared(compare.compare([ran(NOON - 60, runs=200)], HERE, [ran(NOON - 3660)], THERE))
    found = dict(zip(sheet.COMPARED, row, strict=True))
    assert (found["task"], found["runs"], found["runs_before"], found["runs_by"]) == ("send", 200, 100, 1.0)
    assert (found["runs_word"], found["run_p95_word"]) == ("more", "same")
