"""Which characters are shown by what they are, and which stay."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.text import LONG_NAME, NAME_END, cut, halves, visible, visible_lines

# (first, last) of what never shows itself, by hand and apart from the expression that is tested.
ALWAYS_HIDDEN = [
    (0x00, 0x08), (0x0B, 0x0C), (0x0E, 0x1F),  # C0 but tab, newline and carriage return
    (0x7F, 0x9F),  # DEL and C1
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200B), (0x200E, 0x200F),  # zero width, marks of direction
    (0x2028, 0x2029),  # ends of a line and of a paragraph
    (0x202A, 0x202E), (0x2066, 0x2069),  # embeddings, overrides, isolates
    (0x2060, 0x2065), (0x206A, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB),
    (0xD800, 0xDFFF),  # lone surrogates
    (0xFFFE, 0xFFFF), (0x1D173, 0x1D17A), (0xE0000, 0xE007F),  # tags
    (0xE0080, 0xE00FF), (0xE01F0, 0xE0FFF),
]  # fmt: skip
BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(("first", "last"), ALWAYS_HIDDEN, ids=[f"{first:04X}" for first, _ in ALWAYS_HIDDEN])
def test_what_does_not_show_itself_is_shown_by_its_number(first: int, last: int) -> None:
    for number in range(first, last + 1):
        character = chr(number)
        for text in (visible(f"a{character}b"), visible_lines(f"a{character}b"), visible(f"日{character}本")):
            assert character not in text
            assert re.fullmatch(r"[a日](\\u[0-9a-f]{4}){1,2}[b本]", text), text
    for number in (first, last):
        if not 0xD800 <= number <= 0xDFFF:
            assert json.loads(f'"{visible(chr(number))}"') == chr(number)


@pytest.mark.parametrize(
    "text",
    [
        "plain text, with {brackets} [and] \\ a backslash \\n",
        "naïve café Ærø ŝĉĝ — “quotes” … ½ €",
        "Ελληνικά Русский ไทย հայերեն ქართული አማርኛ",
        "العربية مرحبا بالعالم 123",
        "עברית שלום עולם",
        "日本語 中文　한국어 ｆｕｌｌ",
        "葛\U000e0100城市",  # a form of an ideograph, chosen by a selector
        "👩‍🚀 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️‍🔥 ❤️ 👍🏽 🇩🇪 1️⃣",
        "می‌خواهم نامه‌ای",  # Persian, with joiners that keep letters apart
        "ক্‍ষ ශ්‍රී",  # Indic scripts, with joiners that tie letters
        "a\u0301 q\u0323\u0307",
        "no-break\u00a0space \ue0b0 private",
        "\U0001fae9",  # newer than some interpreters
        "",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == visible_lines(text) == text


@pytest.mark.parametrize("joiner", ["\u200c", "\u200d"])
def test_a_joiner_stays_only_where_it_joins(joiner: str) -> None:
    told = f"\\u{ord(joiner):04x}"
    for text in (f"pay{joiner}pal", f"{joiner}a", joiner, f" {joiner}"):
        assert visible(text) == text.replace(joiner, told)
    assert visible(f"日{joiner}{joiner}") == f"日{joiner}{told}"  # not as a place to hide things
    assert visible(f"日{joiner}本") == f"日{joiner}本"
    assert visible(f"\u202e{joiner}") == f"\\u202e{told}"


def test_a_selector_without_an_ideograph_is_shown() -> None:
    assert visible("a\U000e0100") == "a\\udb40\\udd00"
    assert visible("葛\U000e0100\U000e0101") == "葛\U000e0100\\udb40\\udd01"


def test_the_ends_of_lines() -> None:
    text = "a\tb\nc\r\nd\re\u2028f\u0085g"
    assert visible(text) == "a\\tb\\nc\\r\\nd\\re\\u2028f\\u0085g"
    assert visible_lines(text) == "a\tb\nc\r\nd\\re\\u2028f\\u0085g"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_stays_the_same_json(text: str) -> None:
    for value in (text, {text: [text]}):
        for written in (json.dumps(value, ensure_ascii=False), json.dumps(value, ensure_ascii=False, indent=1)):
            assert json.loads(visible_lines(written)) == value
    assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text


@given(st.text())
def test_nothing_in_it_controls_or_turns(text: str) -> None:
    for shown, allowed in ((visible(text), ""), (visible_lines(text), "\t\r\n")):
        shown.encode()
        bad = {each for each in shown if unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")} - set(allowed)
        assert not bad
        assert not set(BIDI) & set(shown)
        assert visible(visible(text)) == visible(text)
    assert len(visible(text).splitlines()) <= 1


def test_cut_keeps_what_every_storage_can_hold() -> None:
    assert cut("a\0b\ud800", 100) == "a\\x00b\\ud800"
    assert cut("ü" * 100, 10) == "üüü…"
    assert cut("x" * 10, 10) == "x" * 10


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("a" * 128, "a" * NAME_END),
        ("x" * 30 + "👩‍🚀" + "b" * 9, "👩‍🚀" + "b" * 9),  # three signs that are one
        ("x" * 30 + "👍🏽" + "b" * 9, "👍🏽" + "b" * 9),
        ("x" * 30 + "❤️" + "b" * 9, "❤️" + "b" * 9),
        ("x" * 30 + "🇩🇪" + "b" * 9, "x🇩🇪" + "b" * 9),
        ("x" * 30 + "葛\U000e0100" + "b" * 9, "葛\U000e0100" + "b" * 9),
        ("x" * 30 + "e\u0301" + "b" * 9, "e\u0301" + "b" * 9),
        ("\u0301" * 40, "\u0301" * 40),  # nothing that it could stand on
    ],
)
def test_the_end_of_a_long_name_is_whole(text: str, tail: str) -> None:
    assert halves(text) == (text[: len(text) - len(tail)], tail)


@given(st.text())
def test_the_halves_of_a_name_are_the_name(text: str) -> None:
    head, tail = halves(text)
    assert head + tail == text
    assert not head or len(text) > LONG_NAME
