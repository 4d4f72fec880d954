"""History: what happened, in the order in which the storage made it true. Written by a simulation or a soak, read by
the checker.

One event is one line: its kind, when (by the storage's clock), and what it is about. Kinds:

* `asked`     a client's enqueue has ended: `ids`, and how: `ok`, `fail` (refused: nothing may be there) or `unknown`
* `inserted`  a job came into being: `id`, `key` (unique, or None), `max_attempts`
* `replaced`  it was overwritten by another request, and begins anew: `id`
* `claimed`   `id`, `token`, `pod`
* `applied`   a Change was accepted (not repeated): `id`, `token`, `why`, `to`, `rescue`, `charged`
* `registered`, `beat` (renewed), `signed_off`: `pod`, and the `lease` that it has from now
* `heard`     a pod was given the answer to a beat: `pod`
* `effect`    a task did its work: `id`, `token`
* `fired`     `schedule`, `fire_at`

A soak, whose actors are processes that can be killed between a commit and their own line about it, also writes:

* `died`      the process of `pod` is dead, and whoever looks can prove it: its jobs may be rescued under a live lease
* `told`      a pod was told that the end of its run was accepted: `id`, `token`
* `fenced`    an effect that was written only if its token was current, one row a job: `id`, and the last `token`
* `fault`     the nemesis did something: `how`
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    at: float
    id: str = ""
    token: str = ""
    pod: str = ""
    key: str | None = None
    ids: tuple[str, ...] = ()
    how: str = ""
    why: str = ""
    to: str = ""
    rescue: bool = False
    charged: bool = True
    lease: float = 0.0
    max_attempts: int | None = None
    schedule: str = ""
    fire_at: float = 0.0


class History:
    """Events in memory, in the order of their writing."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, at: float, **fields: Any) -> None:
        self.events.append(Event(kind=kind, at=at, **fields))

    def lines(self) -> bytes:
        """As JSON, a line each: what a soak appends to its file."""
        encode = msgspec.json.Encoder().encode
        return b"".join(encode(event) + b"\n" for event in self.events)


def read(text: bytes) -> list[Event]:
    """The events of a file. A last line that was cut off by a kill is left out."""
    decode = msgspec.json.Decoder(Event).decode
    return [decode(line) for line in text.split(b"\n")[:-1] if line]
