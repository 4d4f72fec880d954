"""What looks like a secret in a text, and the text without it: `password=…`, `token: …`, the password in a URL.

These patterns are fixed, so that every process masks alike. Patterns of keys, which a dashboard may be given, are in
`web.redact`.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "***"

_WORDS: Final = r"(?:password|passwd|secret|token|authorization|api[_-]?key|cookie|dsn|credential|private[_-]?key)"
# Every repetition before what is looked for is bounded: a text may come from anybody.
_PAIR: Final = re.compile(
    rf"(?i)({_WORDS}[\w-]{{0,40}}[\"']?\s{{0,8}}[=:]\s{{0,8}})((?:bearer|basic)\s{{1,8}}\S+|\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&]+)"
)
_LOGIN: Final = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}://[^\s:/@]{0,200}:)[^\s@/]{1,500}@")
# The beginning of a URL that stops after its first colon: what follows may be the rest of a password, and its @.
_BEGUN_LOGIN: Final = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{0,30}://[^\s:/@]{0,200}:[^\s@/]{1,500}\Z")


def text(given: str) -> str:
    """The text with a mask in the place of each secret.

    >>> text("login failed: password=hunter2, host=db")
    'login failed: password=***, host=db'
    """
    if "://" in given:
        given = _LOGIN.sub(rf"\1{MASK}@", given)
    return _PAIR.sub(rf"\1{MASK}", given)


def reaches_in(given: str, *, is_prefix: bool) -> bool:
    """Whether a text that equals `given`, or begins with it, is compared with more than can be seen of it.

    A mask covers what follows some words. So whatever reaches behind the beginning of a mask has these words in it and
    at least one character more, and shows the pattern itself. Only the password of a URL shows by what comes after it.

    >>> reaches_in("password=h", is_prefix=True), reaches_in("password=", is_prefix=True)
    (True, False)
    """
    if _PAIR.search(given) or _LOGIN.search(given):
        return True
    return is_prefix and _BEGUN_LOGIN.search(given) is not None
