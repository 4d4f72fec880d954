"""Partitions: one queue spread over several, so that what belongs together stays in order.

`Partitions("email", 4)` are the queues email, email__p1, email__p2 and email__p3. An ordering key picks one by a hash
that is fixed for ever and serves nothing else: were it shared with something that also splits by hash, partitions
would fill unevenly. Jobs of one key are claimed in their order; they also *run* in their order where exactly one pod
serves the partition with one slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, cast

from . import names

MOST: Final = 1000
LONGEST_KEY: Final = 512
_OF_ITS_OWN: Final = b"treadle.ordering"


@dataclass(frozen=True, slots=True)
class Partitions:
    """So many queues under one name. Iterating gives their names.

    >>> list(Partitions("email", 3))
    ['email', 'email__p1', 'email__p2']
    """

    name: str
    count: int

    def __post_init__(self) -> None:
        names.check_name("queue", self.name)
        count = cast("object", self.count)
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST:
            raise ValueError(f"queue {self.name} must have 1 to {MOST:,} partitions")
        names.check_name("queue", f"{self.name}__p{self.count - 1}")

    def __iter__(self) -> Iterator[str]:
        yield self.name
        for number in range(1, self.count):
            yield f"{self.name}__p{number}"

    def __len__(self) -> int:
        return self.count

    def of(self, ordering_key: str) -> str:
        """The queue of a key: the same in every process, in every version."""
        number = place(ordering_key, self.count)
        return self.name if number == 0 else f"{self.name}__p{number}"


def place(ordering_key: str, count: int) -> int:
    """The number of the partition that a key belongs to."""
    digest = blake2b(check_key(ordering_key).encode(), digest_size=8, person=_OF_ITS_OWN).digest()
    return int.from_bytes(digest, "big") % count


def check_key(value: str) -> str:
    given = cast("object", value)
    if not isinstance(given, str) or not 1 <= len(given) <= LONGEST_KEY:
        raise ValueError(f"ordering_key must be text of 1 to {LONGEST_KEY} characters")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError("ordering_key must not contain half of a surrogate pair") from None
    return given
