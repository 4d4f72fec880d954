"""What a role may not see, it may not match."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core import filter_sight
from treadle.core.errors import FilterError
from treadle.core.filter import Row, matches, parse
from treadle.core.filter_sight import MOST_POSITIONS, MOST_STEPS, Refused

SECRET = {("password",), ("user", "pin"), ("cards", "iban"), ("0", "deep")}


def is_secret(path: tuple[str, ...]) -> bool:
    return any(path[-len(each) :] == each for each in SECRET)


def judged(text: str, *, payload: bool = True) -> str | Refused:
    found = filter_sight.judge(parse(text), payload=payload, is_secret=is_secret)
    return found if isinstance(found, Refused) else str(found)


@pytest.mark.parametrize("text", ["", "state:failed queue:mail", "id:1 tag:a priority:>3 age:<1h is:due pod:x cause:y"])
@pytest.mark.parametrize("payload", [True, False])
def test_what_everybody_sees_is_asked_as_it_is(text: str, payload: bool) -> None:
    assert judged(text, payload=payload) == text


@pytest.mark.parametrize("text", ["error:x", "reason:x", "x", "-error:x*", "args.a:x", "meta.b:>3", "-result.c:1"])
def test_texts_are_compared_as_they_are_shown(text: str) -> None:
    assert judged(text) == f"{text} as:shown"
    assert judged(f"as:shown {text}") == f"as:shown {text}"


@pytest.mark.parametrize("text", ["args.a:x", "-meta.a:x", "queue:x result.a.0:>3", "error:x args.a:*"])
def test_payloads_are_refused_to_who_sees_none(text: str) -> None:
    refused = judged(text, payload=False)
    assert isinstance(refused, Refused) and refused.why == "hidden" and refused.key in ("args", "meta", "result")


@pytest.mark.parametrize(
    "key",
    [
        "args.password",
        "args.a.password",
        "args.password.below",
        "args.password.0",
        "args.user.pin",
        "args.user.0.pin",
        "args.0.user.pin",
        "args.cards.0.iban",
        "args.cards.0.iban.1",
        "args.cards.iban",
        "args.0.1.cards.2.iban",
        "args.0.deep",
        "args.0.1.deep",
        "result.a.1.2.password",
        "meta.password",
    ],
)
def test_what_is_masked_is_refused_whatever_its_numbers_mean(key: str) -> None:
    for op in ("x", "x*", "*", ">3", "1..3", "a,b"):
        assert judged(f"{key}:{op}") == judged(f"-{key}:{op}") == Refused(key, "masked")


def test_all_ways_to_read_numbers_are_tried() -> None:
    for steps in itertools.product(("0", "a"), repeat=4):
        asked: list[tuple[str, ...]] = []

        def note(path: tuple[str, ...], asked: list[tuple[str, ...]] = asked) -> bool:
            asked.append(path)
            return False

        filter_sight.judge(parse(f"args.{'.'.join(steps)}:1"), payload=True, is_secret=note)
        keys = [step for step in steps if step == "a"]
        assert steps in asked and (not keys or tuple(keys) in asked)


def test_what_is_too_deep_to_be_judged_is_refused() -> None:
    deep = "args." + ".".join(["a"] * (MOST_STEPS + 1))
    listed = "args." + ".".join(["0"] * (MOST_POSITIONS + 1))
    assert judged(f"{deep}:1") == Refused(deep, "deep")
    assert judged(f"{listed}:1") == Refused(listed, "deep")


def test_a_unique_key_is_matched_as_far_as_it_is_shown() -> None:
    assert judged("unique:welcome:42") == "unique:welcome:42"
    assert judged("unique:token:*") == "unique:token:*"
    for text in ("unique:token:4*", "unique:a,token:42", "-unique:token:42"):
        assert judged(text) == Refused("unique", "masked")


WORDS = [
    "args.password:", "args.cards.0.iban:", "args.cards.1.iban:", "args.0.cards.iban:", "args.note:", "meta.notes:",
    "result.note:", "error:", "reason:", "unique:", "-", " ", '"', '"*', "*", ",", "hunter2", "hun", "password=",
    "password=hun", "token:", "token:hu", "q", "DE", ">1", "..", "as:shown", "x", "ValueError: ", "https://ann:",
]  # fmt: skip


def a_row(secret: str) -> Row:
    said = {
        "password": secret,
        "cards": [{"iban": secret}, {"iban": f"{secret}2"}],
        "note": f"password={secret}",
        "notes": [f"https://ann:{secret}@db"],
    }
    return Row(
        id="1",
        state="failed",
        queue="q",
        task="x",
        priority=0,
        attempt=1,
        created_at=0.0,
        run_at=0.0,
        unique_key=f"token:{secret}",
        error_text=f"ValueError: password={secret}",
        reason=f"token: {secret}",
        args=said,
        meta=said,
        result=said,
    )


@settings(max_examples=500)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map("".join), st.booleans())
def test_no_filter_that_passes_tells_two_secrets_apart(text: str, payload: bool) -> None:
    try:
        which = parse(text)
    except FilterError:
        return
    found = filter_sight.judge(which, payload=payload, is_secret=is_secret)
    if not isinstance(found, Refused):
        assert len({matches(found, a_row(secret), 1.0) for secret in ("hunter2", "hun", "DE", "q1")}) == 1, str(found)


def shown(text: str, *, payload: bool) -> str:
    return str(filter_sight.shown(parse(text), payload=payload, is_secret=is_secret))


def test_a_filter_of_another_is_read_with_masks() -> None:
    text = "queue:mail args.email:ann* -args.password:>3 error:password=x unique:token:42 meta.t:1"
    assert shown(text, payload=True) == (
        'queue:mail args.email:ann* -args.password:"***" error:"password=***" unique:"token:***" meta.t:1'
    )
    assert shown(text, payload=False) == (
        'queue:mail args.email:"***" -args.password:"***" error:"password=***" unique:"token:***" meta.t:"***"'
    )


def test_how_to_compare_is_said_by_its_word_and_never_negated() -> None:
    with pytest.raises(FilterError, match="never negated"):
        parse("-as:shown")
    with pytest.raises(FilterError, match="way to compare"):
        parse("as:stored")
