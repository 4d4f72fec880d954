"""What a filter may ask of jobs that are seen with their secrets masked. The rule: what a role may not see, it may not
match. A filter that could match it would tell it, one character at a time; a count or a dry run tells as much as a
list.

Three things can be out of sight:

- **Arguments, results and metadata**, for a role without payloads. A term on them is refused, and so named.
- **What is kept under a secret key** (`args.password`, `args.cards.0.iban`). A term at or below such a key is refused.
  A mask does not count the positions of lists, and a step that is a number may be a position or a key: both are judged.
- **What looks like a secret within a text** (`password=hunter2` in an error, a reason, a string of the arguments). Here
  no term need be refused: the filter gets `as:shown`, and then compares texts as they are shown, masked. It says so
  itself, so that an operation that is stored with it goes on meaning this, whoever works it off. A unique key is
  compared by the database, which knows no masks: there a value that reaches behind a mask is refused.

Pure: `is_secret` is asked for each place, as a path of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from . import redact
from .filter import AS_SHOWN, JSON_ROOTS, Filter, Term, Value

MOST_STEPS: Final = 24
MOST_POSITIONS: Final = 4

IsSecret: TypeAlias = Callable[[tuple[str, ...]], bool]
_TEXTS: Final = ("", "error", "reason")


class Refused(Struct, frozen=True):
    """The term that asks for something out of sight: its key, and why. `deep`: too deep to be judged."""

    key: str
    why: Literal["hidden", "masked", "deep"]


def judge(which: Filter, *, payload: bool, is_secret: IsSecret) -> Filter | Refused:
    """The filter as a role with this sight may use it, or the first term that the role may not use."""
    compares_texts = False
    for term in which.terms:
        refused = _refused(term, payload=payload, is_secret=is_secret)
        if refused is not None:
            return refused
        compares_texts = compares_texts or term.key in _TEXTS or _root(term) in JSON_ROOTS
    if not compares_texts or AS_SHOWN in which.terms:
        return which
    return Filter((*which.terms, AS_SHOWN))


def shown(which: Filter, *, payload: bool, is_secret: IsSecret) -> Filter:
    """Another user's filter as a role with this sight may read it: the values of terms that the role may not use are
    masked, and so is what looks like a secret in all other terms."""
    return Filter(tuple(_shown(term, payload=payload, is_secret=is_secret) for term in which.terms))


def _refused(term: Term, *, payload: bool, is_secret: IsSecret) -> Refused | None:
    if term.key == "unique":
        reaches = any(redact.reaches_in(value.text, is_prefix=value.op == "*") for value in term.values)
        return Refused(term.key, "masked") if reaches else None
    root, *path = term.key.split(".")
    if root not in JSON_ROOTS:
        return None
    if not payload:
        return Refused(root, "hidden")
    if len(path) > MOST_STEPS or sum(map(_may_be_position, path)) > MOST_POSITIONS:
        return Refused(term.key, "deep")
    return Refused(term.key, "masked") if _passes_a_secret(path, is_secret) else None


def _passes_a_secret(path: list[str], is_secret: IsSecret) -> bool:
    """Whether a secret key is on the way, in whichever way its numbers are meant."""
    places: set[tuple[str, ...]] = {()}
    for step in path:
        further = {(*place, step) for place in places}
        if any(map(is_secret, further)):
            return True
        places = further | places if _may_be_position(step) else further
    return False


def _may_be_position(step: str) -> bool:
    return step.isdigit()


def _root(term: Term) -> str:
    return term.key.partition(".")[0]


def _shown(term: Term, *, payload: bool, is_secret: IsSecret) -> Term:
    if _root(term) in JSON_ROOTS and _refused(term, payload=payload, is_secret=is_secret) is not None:
        return Term(term.key, (Value(redact.MASK),), term.negated)
    return Term(term.key, tuple(map(_masked, term.values)), term.negated)


def _masked(value: Value) -> Value:
    text = redact.text(value.text)
    return value if text == value.text else Value(text)
