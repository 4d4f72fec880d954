from __future__ import annotations

import pytest

from treadle.core.filter import parse
from treadle.core.filter_words import nearest, words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("state:failed", "state is failed"),
        ("error:x as:shown", "error has x, with secrets masked"),
        ("queue:mail,billing", "queue is mail or billing"),
        ("-tag:test", "tag is not test"),
        ("task:send_*", "task begins with send_"),
        ("-task:send_*", "task does not begin with send_"),
        ("task:a,b*", "task is a or begins with b"),
        ("unique:*", "unique is any"),
        ("is:retrying", "is retrying"),
        ("-is:stuck", "is not stuck"),
        ("age:>1h", "age is more than 1h"),
        ("finished:<1h", "finished is less than 1h ago"),
        ("created:>=2026-11-15", "created is at least 2026-11-15"),
        ("attempt:<=3", "attempt is at most 3"),
        ("attempt:1..3", "attempt is from 1 to 3"),
        ("error:Timeout", "error has Timeout"),
        ("-error:Timeout", "error has not Timeout"),
        ('"card declined"', "text has card declined"),
        ('-"card"', "no text has card"),
        ("args.user.id:42", "args.user.id is 42"),
        ('args.x:""', 'args.x is ""'),
        ("state:failed queue:mail", "state is failed, queue is mail"),
        ("", ""),
    ],
)
def test_a_filter_in_words(text: str, said: str) -> None:
    assert words(parse(text)) == said


KNOWN = {"queue": ["mail", "billing"], "task": {"welcome"}}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("queue:mial", "queue:mail"),
        ("queue:mial,billing state:failed", "queue:mail,billing state:failed"),
        ("-task:welcom", "-task:welcome"),
        ("queue:mail", None),
        ("queue:entirely-else", None),
        ("queue:mia*", None),  # a prefix is no name
        ("tag:mial", None),  # nobody knows the tags here
        ("mial", None),
    ],
)
def test_the_nearest_spelling(text: str, meant: str | None) -> None:
    found = nearest(parse(text), KNOWN)
    assert (None if found is None else str(found)) == meant
