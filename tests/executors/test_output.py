"""What a child prints is bounded while it is read. R53."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.output import BURST, LONGEST_LINE, RATE, LineLog, Tail


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_a_tail_is_the_end_of_what_came(pieces: list[bytes], limit: int) -> None:
    tail = Tail(limit)
    for piece in pieces:
        tail.feed(piece)
    whole = b"".join(pieces)
    kept = whole[-limit:].decode("utf-8", "replace").replace("\x00", "\ufffd")
    text = tail.text()
    assert len(text.encode()) <= limit, "the mark and the signs for broken bytes count, too"
    if len(whole) <= limit and len(kept.encode()) <= limit:
        assert text == kept
    else:
        assert text.startswith("[cut] "[:limit])
        assert kept.endswith(text[len("[cut] ") :])
    assert tail.is_whole == (len(whole) <= limit)


def test_a_kibibyte_is_a_kibibyte() -> None:
    tail = Tail(1024)
    tail.feed(b"x" * 5000)
    assert tail.text() == "[cut] " + "x" * 1018


def test_a_tail_takes_no_more_room_than_it_may_keep() -> None:
    tail, piece = Tail(1000), b"x" * 65536
    tracemalloc.start()
    for _ in range(2000):
        tail.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tail.seen == 2000 * 65536
    assert peak < 100_000


class Ear:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0.0
        self.log = LineLog(self.lines.append, lambda: self.now)


@given(st.lists(st.text("ab", max_size=5), max_size=20), st.integers(1, 7))
def test_lines_are_said_however_they_were_cut(lines: list[str], size: int) -> None:
    ear = Ear()
    stream = "\n".join(lines).encode()
    for at in range(0, len(stream), size):
        ear.log.feed(stream[at : at + size])
    ear.log.close()
    assert ear.lines == [line for line in lines if line]


def test_a_line_without_end_is_said_once_and_cut() -> None:
    ear = Ear()
    for _ in range(100):
        ear.log.feed(b"x" * 100_000)
    ear.log.feed(b"\nnext\n")
    assert ear.lines == ["x" * LONGEST_LINE + "…", "next"]


def test_more_lines_than_anybody_could_read_are_counted_instead() -> None:
    ear = Ear()
    ear.log.feed(b"y\n" * 5000)
    assert len(ear.lines) <= BURST
    ear.now = 10.0
    ear.log.feed(b"later\n")
    ear.log.close()
    assert ear.lines[-1] == "later"
    unsaid = next(line for line in ear.lines if "not logged" in line)
    said = [line for line in ear.lines if line == "y"]
    assert f"{5000 - len(said):,} lines" in unsaid


def test_a_long_run_may_go_on_talking() -> None:
    ear = Ear()
    for second in range(100):
        ear.now = float(second)
        ear.log.feed(b"line\n" * int(RATE / 2))
    assert len(ear.lines) == 100 * int(RATE / 2)


def test_broken_text_is_shown_as_such() -> None:
    ear = Ear()
    ear.log.feed(b"\xff\x00x\r\n")
    assert ear.lines == ["\ufffd\ufffdx"]
