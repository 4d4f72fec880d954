"""`treadle locks`: named locks that are held."""

from __future__ import annotations

import dataclasses

import click

from ..core import duration
from . import shared
from .command import Invocation, Verbs
from .confirm import confirm
from .errors import NotFound
from .target import with_storage

locks = Verbs(
    "locks", help="Named locks: who holds what.", examples=("treadle locks list", "treadle locks free import")
)


@locks.verb("list", "treadle locks list", "treadle locks list --json | jq .owner")
def list_(call: Invocation) -> None:
    """List the locks that are held."""
    found = with_storage(call.config(), lambda app: app.locks.list())
    if call.out.as_json:
        for lock in found:
            call.out.data(dataclasses.asdict(lock))
        return
    if not found:
        call.out.say("no locks are held")
        return
    call.out.table(
        ("lock", "owner", "fence", "left"),
        [(lock.name, lock.owner, str(lock.fence), duration.words(max(0.0, round(lock.left)))) for lock in found],
    )


@locks.verb("free", "treadle locks free import --yes")
@click.argument("name", metavar="LOCK")
@shared.confirming
def free(call: Invocation, name: str, yes: bool, env: str | None) -> None:
    """Take a lock away from its holder, who is not told: only if the holder is surely gone."""
    config = call.config()
    confirm(call.out, config, f"free lock {name}", yes=yes, env=env)
    if not with_storage(config, lambda app: app.locks.free(name, by=shared.operator())):
        raise NotFound(f"no lock {name} is held; `treadle locks list` has them")
    if call.out.as_json:
        call.out.data({"name": name, "freed": True})
    else:
        call.out.line(f"{name}  freed")
