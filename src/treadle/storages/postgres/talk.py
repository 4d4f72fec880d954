"""Talk: a verb's conversation with the database, without a driver.

A verb is a generator: it yields statements and is sent their rows. So one text of SQL and one piece of reasoning serve
asyncpg on our own connections and whatever driver the caller of `borrow` brings, sync or async.

What a statement raises comes in at the yield, translated: `BadValue` for what the database would not store or accept
(the verb may step back to its savepoint and go on), `Taken` for a row or key that somebody else holds for too long.
Everything else ends the talk.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]
Ask: TypeAlias = tuple[str, tuple[Any, ...]]
Talk: TypeAlias = Generator[Ask, list[Any], T]

# Told to whoever carries the talk: on a connection of our own a transaction, inside a borrowed one a savepoint.
BEGIN: Final[Ask] = ("begin", ())
COMMIT: Final[Ask] = ("commit", ())
# After BEGIN: a row that somebody holds is not waited for until the call's deadline, for verbs whose caller has other
# things to do and comes again. And whoever stands still holds the rows no longer than a call may take, through a pooler
# too.
BRIEFLY: Final[Ask] = (
    "select set_config('lock_timeout', '500', true), set_config('idle_in_transaction_session_timeout', '10000', true)",
    (),
)
# With (table, columns, records): only on a connection of our own.
COPY: Final = "copy"


class BadValue(ValueError):
    """The database refuses a value: out of range, not storable, against a constraint."""


class Taken(Exception):
    """Somebody else's open transaction holds what this statement needs."""


def only_reading(talk: Talk[T]) -> Talk[T]:
    """The talk in one transaction in which the server writes nothing: for who may only read, on a pooler's connection,
    which cannot be told so once and for all."""
    yield "begin transaction read only", ()
    try:
        ask = next(talk)
        while True:
            try:
                rows = [] if ask in (BEGIN, COMMIT) else (yield ask)
            except (BadValue, Taken) as error:
                ask = talk.throw(error)
            else:
                ask = talk.send(rows)
    except StopIteration as stop:
        answer: T = stop.value
    finally:
        talk.close()
    yield COMMIT
    return answer
