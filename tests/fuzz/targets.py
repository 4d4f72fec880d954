"""What is fuzzed: functions that read text which anybody may have written.

A target takes bytes and returns, or raises what its contract names. Anything else, and any answer that contradicts
another, is a finding. None of them may be slow: a second for one input is a finding, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from treadle.core import address_ranges, cron, duration, filter, filter_sight, names, payload
from treadle.core.errors import FilterError, PayloadError
from treadle.tasks.external.http import read_url

Target = Callable[[bytes], None]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def decode_payload(data: bytes) -> None:
    """Text from outside: decoded strictly or refused; what is decoded can be encoded, and comes back the same."""
    try:
        value = payload.decode(data)
    except PayloadError:
        return
    again = payload.encode(value)
    assert payload.decode(again) == value
    assert payload.encode(payload.decode(again)) == again, "canonical text is not canonical"
    json.loads(again)


def encode_payload(data: bytes) -> None:
    """Any value that JSON can say, and some that it cannot."""
    try:
        value = json.loads(_text(data))
    except (ValueError, RecursionError):
        value = {"text": _text(data), "bytes": data}
    try:
        text = payload.encode(value)
    except PayloadError:
        return
    assert payload.decode_trusted(text) == payload.decode(text)


def parse_filter(data: bytes) -> None:
    """A filter parses or says where it does not; its own text parses to the same."""
    text = _text(data)
    try:
        found = filter.parse(text)
    except FilterError:
        return
    assert filter.parse(str(found)) == found, f"{text!r} → {str(found)!r}"


def _seen(secret: str) -> filter.Row:
    """A job with a secret at every place that is masked."""
    said = {"password": secret, "cards": [{"iban": secret}], "note": f"token={secret}", "open": "seen", "n": [1, "x"]}
    return filter.Row(
        id="019a8997-8540-7595-9bde-31bb1968d054",
        state="failed",
        queue="mail",
        task="send",
        priority=0,
        attempt=1,
        created_at=0.0,
        run_at=0.0,
        unique_key=f"token:{secret}",
        error_text=f"ValueError: password={secret}",
        reason=f"by api_key={secret}",
        args=said,
        meta=said,
        result=said,
    )


def match_what_is_seen(data: bytes) -> None:
    """A filter that a role may use answers alike, whatever the secrets are."""
    try:
        asked = filter.parse(_text(data))
    except FilterError:
        return
    for payload_too in (True, False):
        found = filter_sight.judge(asked, payload=payload_too, is_secret=lambda path: path[-1] in ("password", "iban"))
        if isinstance(found, filter_sight.Refused):
            continue
        answers = {filter.matches(found, _seen(secret), 1.0) for secret in ("hunter2", "DE89", "q")}
        assert len(answers) == 1, f"{_text(data)!r} tells the secret"


def parse_duration(data: bytes) -> None:
    try:
        found = duration.seconds(_text(data))
    except ValueError:
        return
    assert found >= 0


def parse_cron(data: bytes) -> None:
    text = _text(data)
    try:
        cron.parse(text)
    except ValueError:
        return
    cron.words(text)
    for at, _ in zip(cron.fires_after(text, "Europe/Berlin", 0.0, 1_800_000_000.0), range(3), strict=False):
        assert at > 1_800_000_000.0


def check_names(data: bytes) -> None:
    text = _text(data)
    for check in (lambda: names.check_name("queue", text), lambda: names.parse_queues(text)):
        try:
            check()
        except ValueError:
            pass
    try:
        tags = names.check_tags([text])
    except ValueError:
        return
    assert tags


def judge_url(data: bytes) -> None:
    """A URL is refused, or names a host that stays within its place; an address is public or it is said why not."""
    text = _text(data)
    why = address_ranges.why_not_public(text)
    assert address_ranges.may_connect(text, ()) == (why is None)
    try:
        found = read_url(text)
    except ValueError:
        return
    assert not set("/@?#\\ %\r\n\0") & set(found.host), found.host
    assert (found.authority + found.path).isascii()
    assert (found.authority + found.path).isprintable()


TARGETS: Final[Mapping[str, Target]] = {
    "decode_payload": decode_payload,
    "encode_payload": encode_payload,
    "parse_filter": parse_filter,
    "match_what_is_seen": match_what_is_seen,
    "parse_duration": parse_duration,
    "parse_cron": parse_cron,
    "check_names": check_names,
    "judge_url": judge_url,
}

SEEDS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "decode_payload": (b'{"a": [1, 2.5, null, true, "\\u00e9"]}', b"[[[[1]]]]", b'{"a":1,"a":2}', b"1e400", b"NaN"),
    "encode_payload": (b'{"a": {"b": [1, -0.0, 1e22]}}', b'"\\ud800"'),
    "parse_filter": (
        b'state:failed queue:mail,billing task:send_* -tag:test args.user.id:42 attempt:>3 age:>1h "card declined"',
        b"created:2026-11-15..2026-11-16 wait:>=30s is:stuck id:abc",
    ),
    "match_what_is_seen": (
        b"args.password:h* args.cards.0.iban:DE89 meta.n:x",
        b'error:hunter -reason:2 args.note:"token=h"* unique:token:h* "hunter2"',
        b"priority:>99999999999999999999 attempt:<1e300 args.n:1..2 created:9999-12-31",
    ),
    "parse_duration": (b"1h30m", b"250ms", b"3d"),
    "parse_cron": (b"0 9 * * MON-FRI", b"*/5 * * * *", b"@daily", b"0 0 L * *", b"30s"),
    "judge_url": (
        b"https://hooks.example.com:8443/a?b=c",
        b"http://[::ffff:127.0.0.1]/",
        b"169.254.169.254",
        b"fe80::1%eth0",
    ),
    "check_names": (b"mail", b"mail:10,default", b"a.b-c_d"),
}
