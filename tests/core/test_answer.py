"""Answers from outside: what becomes of a word, and what the job makes of it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from treadle.core import answer, lifecycle
from treadle.core.answer import Answer, Given, Mark, NewAnswer, Settled
from treadle.core.backoff import Retry
from treadle.core.errors import AnswerFailed, PayloadError, PayloadTooLarge
from treadle.core.job import ErrorEntry, Job, NewJob, RetryOverride, State
from treadle.core.outcome import AnswerAgain, ChildLost, Raised, Wait, Waits

YES = answer.result("yes")
NO = answer.error("no")


def a_row(**fields: Any) -> Answer:
    row: dict[str, Any] = {"id": "a", "job": "job", "claim": "token", "timeout": 60.0, "opened_at": 0.0}
    return Answer(**{**row, "expires_at": 60.0, **fields})


def a_job(**fields: Any) -> Job:
    job: dict[str, Any] = {"id": "job", "task": "work", "queue": "mail", "state": State.WAITING, "token": "token"}
    return Job(**{**job, "attempt": 2, "max_attempts": 3, "pod": "pod", "started_at": 1.0, **fields})


def said(row: Answer, given: Given, at: float) -> Answer:
    return replace(row, kind=given.kind, value=given.value, after=given.after, at=at, waits=False)


# Tokens and words ----------------------------------------------------------------------------------------------------


def test_an_id_tells_nothing_of_its_token() -> None:
    assert answer.id_of("secret") == answer.id_of("secret") != answer.id_of("Secret")
    assert "secret" not in answer.id_of("secret")
    assert "secret" not in str(Wait("secret"))
    assert answer.id_of("\ud800")  # whoever asks, it is answered


def test_a_lost_child_counts_as_a_crash_unless_it_met_a_limit() -> None:
    assert ChildLost("killed").kind == "worker_lost"
    assert ChildLost("too much memory", "limit").kind == "limit"


def test_what_a_task_meets_says_what_was_said() -> None:
    failed = AnswerFailed("the answer is an error: no", {"code": 402})
    assert (str(failed), failed.error) == ("the answer is an error: no", {"code": 402})
    assert AnswerAgain("10m").delay == 600.0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", Given(kind="result", value="null")),
        (b'{"result": {"b": 1, "a": [2]}}', Given(kind="result", value='{"a":[2],"b":1}')),
        ('{"result": null}', Given(kind="result", value="null")),
        ('{"error": "declined"}', Given(kind="error", value='"declined"')),
        ('{"again": "10m"}', Given(kind="again", after=600.0)),
    ],
)
def test_a_body_says_one_thing(body: str | bytes, expected: Given) -> None:
    assert answer.read(body) == expected


@pytest.mark.parametrize("body", ["[]", "7", "{}", '{"result": 1, "error": 2}', '{"expired": 1}', '{"Result": 1}'])
def test_a_body_that_says_something_else_is_refused(body: str) -> None:
    with pytest.raises(PayloadError, match='one of "result", "error" and "again"'):
        answer.read(body)


def test_a_word_must_be_json_of_some_size() -> None:
    with pytest.raises(PayloadTooLarge, match="the error cannot be stored"):
        answer.error("x" * answer.LARGEST_ERROR)
    with pytest.raises(PayloadTooLarge, match="the answer is too large"):
        answer.read(f'{{"result": "{"x" * 2_000_000}"}}')
    with pytest.raises(PayloadTooLarge, match="the answer cannot be stored"):
        answer.read(f'{{"result": "{"x" * 1024 * 1024}"}}')
    with pytest.raises(PayloadError, match="the answer is not JSON"):
        answer.read("yes")
    with pytest.raises(PayloadError, match="NaN"):
        answer.result(float("nan"))
    with pytest.raises(ValueError, match="after must not be negative"):
        answer.again(-1)


def test_a_signature_is_over_the_token_and_the_body() -> None:
    signature = answer.sign("secret", "token", b"body")
    assert signature == hmac.new(b"secret", b"token\nbody", hashlib.sha256).hexdigest()
    assert answer.is_signed("secret", "token", b"body", signature)
    assert answer.is_signed("secret", "token", b"body", f"sha256={signature.upper()}")
    for wrong in (None, "", "x", "ü", signature[:-1], answer.sign("other", "token", b"body")):
        assert not answer.is_signed("secret", "token", b"body", wrong)
    assert not answer.is_signed("secret", "toke", b"nbody", signature)
    assert not answer.is_signed("secret", "token", b"bodY", signature)


# What becomes of a word ----------------------------------------------------------------------------------------------


def test_an_answer_is_open_for_its_whole_time() -> None:
    new = NewAnswer(id="a", job="job", claim="token", timeout=60.0)
    assert answer.opened(new, 100.0) == a_row(opened_at=100.0, expires_at=160.0)
    assert NewAnswer(id="a", job="job", claim="token").timeout == 3600.0


def test_the_first_word_wins_and_releases_who_waits() -> None:
    row = a_row(waits=True)
    assert answer.settle(row, a_job(), YES, 5.0) == Settled("won", said(row, YES, 5.0), True)


def test_a_word_that_is_faster_than_the_wait_is_kept() -> None:
    row = a_row()
    assert answer.settle(row, a_job(state=State.RUNNING), YES, 5.0) == Settled("won", said(row, YES, 5.0), False)


def test_a_word_after_the_limit_counts_until_somebody_acts_on_it() -> None:
    assert answer.settle(a_row(waits=True), a_job(), YES, 61.0).outcome == "won"


def test_the_same_word_twice_is_fine_and_another_is_a_conflict() -> None:
    row = said(a_row(), YES, 5.0)
    for job in (a_job(), a_job(token="new"), a_job(state=State.SUCCEEDED), None):
        assert answer.settle(row, job, YES, 6.0) == Settled("same")
        assert answer.settle(row, job, answer.result("no"), 6.0) == Settled("conflict")
        assert answer.settle(row, job, NO, 6.0) == Settled("conflict")
        assert answer.settle(row, job, answer.EXPIRED, 99.0) == Settled("conflict")


@pytest.mark.parametrize(
    "job",
    [
        None,
        a_job(token="of another claim"),
        a_job(token="of another claim", state=State.RUNNING),
        a_job(state=State.READY),
        a_job(state=State.SCHEDULED),
        a_job(state=State.CANCELLED),
        a_job(state=State.FAILED),
        a_job(state=State.SUCCEEDED),
    ],
)
def test_a_token_ends_with_its_attempt(job: Job | None) -> None:
    assert answer.settle(a_row(), job, YES, 5.0) == Settled("stale")
    assert answer.keep_alive(a_row(), job, 5.0) == Settled("stale")


def test_nobody_knows_a_token_that_was_never_made() -> None:
    assert answer.settle(None, None, YES, 5.0) == Settled("unknown")
    assert answer.keep_alive(None, None, 5.0) == Settled("unknown")


def test_a_run_that_waits_in_place_ends_its_wait_by_a_word_of_its_own() -> None:
    job = a_job(state=State.RUNNING)
    assert answer.settle(a_row(), job, answer.EXPIRED, 59.0) == Settled("early")
    over = answer.settle(a_row(), job, answer.EXPIRED, 60.0)
    assert over == Settled("won", said(a_row(), answer.EXPIRED, 60.0), False)
    assert answer.settle(over.answer, job, answer.EXPIRED, 61.0) == Settled("same")
    assert answer.settle(over.answer, job, YES, 61.0) == Settled("stale")
    assert answer.keep_alive(over.answer, job, 61.0) == Settled("stale")


def test_a_beat_moves_the_limit() -> None:
    row = a_row(waits=True)
    assert answer.keep_alive(row, a_job(), 50.0) == Settled("won", replace(row, expires_at=110.0))
    assert answer.keep_alive(said(row, YES, 5.0), a_job(), 50.0) == Settled("stale")


def test_a_run_meets_its_answer_or_waits_for_it() -> None:
    assert answer.meet(a_row(), "job", "token") == "wait"
    assert answer.meet(said(a_row(), YES, 1.0), "job", "token") == "answered"
    assert answer.meet(said(a_row(), answer.EXPIRED, 1.0), "job", "token") == "refused"
    assert answer.meet(None, "job", "token") == "refused"
    assert answer.meet(a_row(), "other", "token") == "refused"
    assert answer.meet(a_row(), "job", "of another claim") == "refused"


@pytest.mark.parametrize(
    ("job", "row", "found"),
    [
        ({}, {"waits": True}, True),
        ({}, {"waits": False}, False),
        ({}, {"waits": True, "kind": "result"}, False),
        ({"state": State.RUNNING}, {"waits": True}, False),
        ({"token": "another"}, {"waits": True}, False),
        ({"id": "another"}, {"waits": True}, False),
    ],
)
def test_a_job_awaits_an_open_answer_of_its_own_claim(job: dict[str, Any], row: dict[str, Any], found: bool) -> None:
    assert answer.awaits(a_job(**job), a_row(**row)) is found


def test_a_wait_is_over_if_nobody_has_answered_in_time() -> None:
    assert answer.is_over(a_row(), 60.0)
    assert not answer.is_over(a_row(), 59.9)
    assert not answer.is_over(said(a_row(), YES, 1.0), 99.0)
    assert not answer.is_over(None, 99.0)


_words = st.sampled_from([YES, NO, answer.again(5), answer.EXPIRED])


@given(words=st.lists(_words, min_size=1, max_size=8), waits=st.booleans(), now=st.floats(0, 120))
def test_of_any_words_in_any_order_at_most_one_wins(words: list[Given], waits: bool, now: float) -> None:
    row, job = a_row(waits=waits), a_job(state=State.WAITING if waits else State.RUNNING)
    won: list[Given] = []
    for word in words:
        settled = answer.settle(row, job, word, now)
        if settled.outcome == "won":
            assert settled.answer is not None
            won.append(word)
            row = settled.answer
        assert settled.releases is (settled.outcome == "won" and waits)
    assert len(won) <= 1
    assert [word for word in words if answer.settle(row, job, word, now).outcome == "same"] == [
        word for word in words if word in won
    ]


# The mark ------------------------------------------------------------------------------------------------------------


def test_the_mark_says_which_answer_the_job_got() -> None:
    meta = answer.marked('{"who":"me"}', said(a_row(), YES, 1.0))
    assert meta == '{"treadle:answer":{"id":"a","kind":"result"},"who":"me"}'
    assert answer.mark_of(meta) == Mark("a", "result")
    assert answer.marked(None, said(a_row(), NO, 1.0)) == '{"treadle:answer":{"id":"a","kind":"error"}}'
    assert answer.marked("not json", said(a_row(), NO, 1.0)) == '{"treadle:answer":{"id":"a","kind":"error"}}'


@pytest.mark.parametrize(
    "meta", [None, "{}", '{"who":"treadle"}', '{"treadle:answer":7}', '["treadle:answer"]', '"treadle:answer"x']
)
def test_a_meta_without_a_mark_has_none(meta: str | None) -> None:
    assert answer.mark_of(meta) is None
    assert answer.without_error(meta) == meta


def test_only_the_mark_of_an_error_goes() -> None:
    kept = answer.marked(None, said(a_row(), YES, 1.0))
    assert answer.without_error(kept) == kept
    assert answer.without_error(answer.marked(None, said(a_row(), NO, 1.0))) is None
    assert answer.without_error(answer.marked('{"who":"me"}', said(a_row(), NO, 1.0))) == '{"who":"me"}'


# The job's life ------------------------------------------------------------------------------------------------------


def test_an_answer_releases_the_job_and_returns_the_charge() -> None:
    change = lifecycle.answered(a_job(), said(a_row(), YES, 1.0))
    assert (change.why, change.expect, change.to, change.token) == (
        "answered",
        frozenset({State.WAITING}),
        State.READY,
        "token",
    )
    assert (change.attempt, change.delay, change.foreign) == (1, 0.0, True)
    assert isinstance(change.meta, str)
    assert answer.mark_of(change.meta) == Mark("a", "result")


def test_an_answer_that_was_faster_is_written_by_the_run_itself() -> None:
    change = lifecycle.answered(a_job(state=State.RUNNING), said(a_row(), NO, 1.0))
    assert (change.expect, change.to, change.foreign) == (frozenset({State.RUNNING}), State.READY, False)


def test_a_wait_that_meets_its_answer_keeps_what_the_run_has_said() -> None:
    job, row = a_job(state=State.RUNNING, meta='{"n":0}'), said(a_row(), YES, 1.0)
    change = lifecycle.finish(job, Waits("a"), Retry(), 0.5)
    assert lifecycle.meet(change, job, row) == lifecycle.answered(job, row)
    follow_up = NewJob(id="next", task="work", queue="mail")
    met = lifecycle.meet(replace(change, meta='{"n":1}', follow_ups=(follow_up,)), job, row)
    assert met.meta == '{"n":1,"treadle:answer":{"id":"a","kind":"result"}}'
    assert met.follow_ups == (follow_up,)


def test_again_comes_back_later() -> None:
    change = lifecycle.answered(a_job(), said(a_row(), answer.again("10m"), 1.0))
    assert (change.to, change.delay, change.attempt) == (State.SCHEDULED, 600.0, 1)


def test_a_wait_in_vain_is_a_failed_attempt_of_its_own_kind() -> None:
    change = lifecycle.expired(a_job(), "a", 3600.0, Retry(), 0.5)
    assert (change.why, change.expect, change.to) == ("retried", frozenset({State.WAITING}), State.SCHEDULED)
    assert (change.token, change.answer, change.foreign, change.attempt) == ("token", "a", True, None)
    assert change.error is not None
    assert (change.error.kind, change.error.message) == ("expired", "no answer came within 1h")
    assert change.delay == 10.0  # the second attempt's


def test_a_wait_in_vain_fails_the_job_at_its_last_attempt() -> None:
    assert lifecycle.expired(a_job(attempt=3), "a", 60.0, Retry(), 0.5).to is State.FAILED
    live = RetryOverride(max_attempts=2)
    assert lifecycle.expired(a_job(), "a", 60.0, Retry(), 0.5, live).to is State.FAILED
    assert lifecycle.expired(a_job(), "a", 60.0, Retry.fixed(0, jitter=0), 0.5).to is State.READY


def test_an_attempt_that_failed_forgets_the_error_that_it_was_told_and_keeps_a_result() -> None:
    failing = Raised(ErrorEntry(attempt=2, kind="error"))
    told = a_job(state=State.RUNNING, meta=answer.marked(None, said(a_row(), NO, 1.0)))
    assert lifecycle.finish(told, failing, Retry(), 0.5).meta is None
    paid = a_job(state=State.RUNNING, meta=answer.marked(None, said(a_row(), YES, 1.0)))
    assert lifecycle.finish(paid, failing, Retry(), 0.5).meta is UNSET
    assert lifecycle.finish(a_job(state=State.RUNNING, meta="{}"), failing, Retry(), 0.5).meta is UNSET
    assert lifecycle.rescue(told, "pod").meta is UNSET  # nobody knows what it made of it


def test_a_waiting_job_may_be_cancelled_and_moved() -> None:
    assert lifecycle.cancel(a_job()) is not None
    assert lifecycle.move(a_job(), "other") is not None
    assert lifecycle.set_priority(a_job(), 5) is not None
    assert lifecycle.reschedule(a_job()) is None
    assert lifecycle.revive(a_job()) is None
    assert lifecycle.remove(a_job()) is None
