"""Text that comes from anywhere, made fit to be kept (`cut`) and to be shown (`visible`, `visible_lines`, `halves`).

Whoever enqueues a job, or makes one fail, writes text that others read: in a log, a terminal, a spreadsheet. A few
characters of it do not show themselves but do something: move the cursor, clear the screen, begin a new line, turn the
direction of what follows (behind U+202E `fdp.exe` looks like `exe.pdf`), or hide between letters so that two names look
the same. They are shown by what they are, `\\u202e`, in the notation of JSON: so text that is JSON stays the same JSON.
A backslash is not escaped; who needs to tell `\\u202e` from six letters reads the JSON of the API or of `--json`.

Everything else stays as it is: accents, Arabic and Hebrew letters (those have their direction by themselves), CJK,
emoji, private use, and whatever Unicode adds later (the table is ours, and does not change with the interpreter). Three
kinds of invisible characters stay where writing needs them, and nowhere else:

- U+200D and U+200C, the joiners, behind a letter that is not ASCII: emoji of several (👩‍🚀), Persian, Indic scripts;
- U+FE00 to U+FE0F, which choose a form of the sign before (❤️);
- U+E0100 to U+E01EF behind a CJK ideograph, whose form they choose.

The flags of England, Scotland and Wales are the price: they are spelled with tags, which also hide whole sentences.
"""

from __future__ import annotations

import re
from functools import cache
from re import Match
from typing import Final
from unicodedata import combining

LONG_NAME: Final = 28  # characters; a shorter one stands in a table as it is
NAME_END: Final = 10

# C1 has NEL among it; U+2028 and U+2029 end a line for many programs, though not for all.
_CONTROL: Final = r"\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff"
_TURNING: Final = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u206a-\u206f"
_UNSEEN: Final = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
_ODD: Final = _CONTROL + _TURNING + _UNSEEN
_JOINERS: Final = rf"(?<![^\x00-\x7f{_ODD}\u200c\u200d])[\u200c\u200d]"
_VARIANTS: Final = "(?<![\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def cut(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, with an ellipsis where something was left out."""
    # Before all else: a character is a byte or more, and nobody should encode a gigabyte to keep a line of it.
    told = text[: limit + 1].replace("\x00", "\\x00").encode("utf-8", "backslashreplace")
    if len(told) <= limit:
        return told.decode()
    return told[: limit - 3].decode("utf-8", "ignore") + "…"


def visible(text: str) -> str:
    """The text in one line, with all that does not show itself escaped.

    >>> visible("a\\nb\\x1b[2J"), visible("safe\\u202efdp.exe"), visible("naïve 👩‍🚀 שלום")
    ('a\\\\nb\\\\u001b[2J', 'safe\\\\u202efdp.exe', 'naïve 👩‍🚀 שלום')
    """
    return text if _is_plain(text) else _hidden().sub(_escaped, text)


def visible_lines(text: str) -> str:
    """The same for text of several lines: their ends and tabs stay."""
    return text if _is_plain(text) else _hidden_in_lines().sub(_escaped, text)


def halves(text: str) -> tuple[str, str]:
    """A long name as its beginning and its end, for where room is short: the beginning may be shortened, the end stays,
    because names of a family differ there. A short name has an empty beginning. No sign is torn in two.

    >>> halves("mail"), halves("shop.mail.newsletters.weekly.send_to_everybody")
    (('', 'mail'), ('shop.mail.newsletters.weekly.send_to', '_everybody'))
    """
    if len(text) <= LONG_NAME:
        return "", text
    at = len(text) - NAME_END
    while at and _belongs_to(text[at - 1], text[at]):
        at -= 1
    return text[:at], text[at:]


def _belongs_to(before: str, sign: str) -> bool:
    """Whether a sign is drawn together with the one before it: an accent, a form, a skin, a half of a flag or of an
    emoji of several."""
    return (
        before == "\u200d"
        or sign in "\u200c\u200d"
        or "\ufe00" <= sign <= "\ufe0f"
        or "\U0001f3fb" <= sign <= "\U0001f3ff"
        or "\U0001f1e6" <= sign <= "\U0001f1ff"
        or "\U000e0100" <= sign <= "\U000e01ef"
        or combining(sign) != 0
    )


def _is_plain(text: str) -> bool:
    """Most texts are: they need no search, and a command that shows only such need not build the expressions."""
    return text.isascii() and text.isprintable()


@cache
def _hidden() -> re.Pattern[str]:
    return re.compile(rf"[\x00-\x1f{_ODD}]|{_JOINERS}|{_VARIANTS}")


@cache
def _hidden_in_lines() -> re.Pattern[str]:
    """Lines and tabs stay; a carriage return stays before a newline only, where it is part of the end of a line."""
    return re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f{_ODD}]|\r(?!\n)|{_JOINERS}|{_VARIANTS}")


def _escaped(found: Match[str]) -> str:
    character = found[0]
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be", "surrogatepass").hex()  # beyond 16 bits JSON has two
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
