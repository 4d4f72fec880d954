"""Records of `logging`, seen where they are made."""

from __future__ import annotations

import logging

import pytest

from treadle.context.logs import JobLogger, Write, capture, text_of


class Bad:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_what_is_captured_ends_when_it_is_told_to() -> None:
    seen: list[tuple[int, str]] = []
    before = logging.getLogRecordFactory()
    log = logging.getLogger("test.joblog")
    stop = capture(lambda: lambda level, text: seen.append((level, text)))
    log.warning("one %d", 1)
    log.debug("held back by its level")
    stop()
    stop()
    log.warning("two")
    assert seen == [(30, "test.joblog: one 1")]
    assert logging.getLogRecordFactory() is before


def test_somebody_elses_factory_is_left_alone() -> None:
    before = logging.getLogRecordFactory()
    seen: list[str] = []
    stop = capture(lambda: lambda level, text: seen.append(text))
    ours = logging.getLogRecordFactory()

    def theirs(*args: object, **kwargs: object) -> logging.LogRecord:
        return ours(*args, **kwargs)  # type: ignore[arg-type]

    logging.setLogRecordFactory(theirs)
    try:
        stop()
        assert logging.getLogRecordFactory() is theirs
        logging.getLogger("test").warning("nobody looks")
        again = capture(lambda: lambda level, text: seen.append(text))
        logging.getLogger("test").warning("seen once")
        again()
        assert seen == ["test: seen once"]
    finally:
        logging.setLogRecordFactory(ours)
        capture(lambda: None)()
        assert logging.getLogRecordFactory() is before


def test_records_without_a_level_and_of_nobody_are_let_through() -> None:
    seen: list[str] = []

    def find() -> Write | None:
        return lambda level, text: seen.append(text)

    stops = [capture(lambda: None), capture(find)]
    logging.makeLogRecord({"msg": "made by hand"})
    logging.getLogger("test").warning("hello")
    for stop in stops:
        stop()
    assert seen == ["test: hello"]


def test_text_is_had_of_every_record() -> None:
    def record(msg: object, *args: object) -> logging.LogRecord:
        return logging.LogRecord("n", 20, "", 0, msg, args, None)

    assert text_of(record("%s", "x")) == "x"
    assert text_of(record("%(a)d", {"a": 5})) == "5"
    assert text_of(record("%d", "x")) == "%d (TypeError when it was put into words)"
    assert text_of(record("%s", Bad())) == "%s (RuntimeError when it was put into words)"
    assert text_of(record(Bad())) == "Bad (RuntimeError when it was put into words)"


def test_a_trace_is_kept_without_its_secrets() -> None:
    kept: list[str] = []
    log = JobLogger(logging.getLogger("test.quiet"), {}, lambda level, text: kept.append(text), 20)
    log.logger.setLevel(logging.CRITICAL)
    error = ValueError("token=abcdef0123456789")
    log.error("by value", exc_info=error)
    try:
        raise error
    except ValueError:
        log.exception("by hand")
        log.info("as told", exc_info=True)
    log.debug("below")
    assert [text.splitlines()[0] for text in kept] == ["by value", "by hand", "as told"]
    assert all("ValueError: token=***" in text for text in kept)


def test_what_a_logger_keeps_is_not_kept_twice(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[str] = []
    stop = capture(lambda: lambda level, text: kept.append(f"captured {text}"))
    JobLogger(logging.getLogger("test.loud"), {"job_id": "a"}, lambda level, text: kept.append(text), 20).warning(
        "once"
    )
    stop()
    assert kept == ["once"]
    (record,) = caplog.records
    assert (record.funcName, vars(record)["job_id"]) == ("test_what_a_logger_keeps_is_not_kept_twice", "a")
