from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from treadle.cli import errors
from treadle.cli.errors import guard
from treadle.core import errors as core


def every_error() -> list[type[core.TreadleError]]:
    return [each for each in vars(core).values() if isinstance(each, type) and issubclass(each, core.TreadleError)]


CODES = {
    "TreadleError": 1,
    "ConfigError": 78,
    "MissingExtra": 78,
    "PayloadError": 2,
    "PayloadTooLarge": 2,
    "BulkIncomplete": 1,
    "FilterError": 2,
    "UnknownTask": 2,
    "JobNotFound": 3,
    "ScheduleNotFound": 3,
    "PodNotFound": 3,
    "OperationNotFound": 3,
    "UnknownLimit": 3,
    "RateLimited": 1,
    "LockHeld": 1,
    "LockLost": 1,
    "ClaimLost": 1,
    "AnswerNotFound": 3,
    "AnswerStale": 1,
    "AnswerExpired": 1,
    "AnswerFailed": 1,
    "Conflict": 1,
    "JobFailed": 1,
    "JobCancelled": 1,
    "ResultNotKept": 1,
    "ResultTimeout": 1,
    "StorageUnavailable": 5,
    "StorageDenied": 78,
    "StorageTimeout": 5,
    "SchemaTooOld": 78,
    "SchemaTooNew": 78,
    "ReadOnly": 1,
}


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_one_line_and_a_code(kind: type[core.TreadleError], capsys: pytest.CaptureFixture[str]) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "something is wrong")

    def fail() -> None:
        raise error

    assert guard(fail, trace=False) == CODES[kind.__name__]
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("treadle: something is wrong")


def test_something_else_that_is_missing_is_3() -> None:
    assert errors.code_of(errors.NotFound("no queue mial")) == 3


def test_a_remedy_is_added_only_where_the_message_has_none() -> None:
    assert errors.lines_of(core.JobNotFound("there is no job 7")) == [
        "treadle: there is no job 7; `treadle jobs find` lists what is there"
    ]
    assert errors.lines_of(core.StorageUnavailable("no such file; run `treadle db migrate`")) == [
        "treadle: no such file; run `treadle db migrate`"
    ]


def test_a_suggestion_is_remedy_enough() -> None:
    error = core.FilterError('unknown key "quue"; did you mean "queue"?', 3)
    assert errors.lines_of(error) == ['treadle: column 3: unknown key "quue"; did you mean "queue"?']


@pytest.mark.parametrize("kind", [KeyboardInterrupt, click.Abort])
def test_an_interrupt_is_130(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    assert guard(fail, trace=False) == 130


def test_a_closed_pipe_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise BrokenPipeError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(errors, "_forget_stdout", lambda: None)
        assert guard(fail, trace=False) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        line = [sys.executable, "-m", "treadle.cli", "--help"]
        ran = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "treadle: [Errno 28] No space left on device; --traceback shows where\n"


def test_what_a_command_returns_is_the_code() -> None:
    assert guard(lambda: 4, trace=False) == 4
    assert guard(lambda: None, trace=False) == 0


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        guard(lambda: 1 // 0, trace=False)
