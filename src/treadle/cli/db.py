"""`treadle db`: the storage itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config import masked
from ..core.errors import ConfigError
from .command import Invocation, Verbs
from .db_copy import copy
from .errors import DONE, REFUSED
from .target import url_of, with_any_schema, with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..ports import SchemaStatus, Storage

db = Verbs(
    "db",
    help="The storage itself.",
    examples=(
        "treadle db status",
        "treadle db backup before-upgrade.db",
        "treadle db copy sqlite:///treadle.db postgresql://db/shop",
    ),
)
db.add_command(copy)


@db.verb("status", "treadle db status", "treadle db status --url sqlite:////srv/treadle.db --json")
def status(call: Invocation) -> int:
    """Say which schema the storage has, and which this version brings. Exit code 78 if it must be migrated first."""
    config = call.config()
    found = with_any_schema(config, lambda storage: storage.schema())
    _tell(call, url_of(config), found)
    return DONE if found.current >= found.newest else REFUSED


@db.verb("plan", "treadle db plan", "treadle db plan --url postgresql://db/shop")
def plan(call: Invocation) -> None:
    """Say what `db migrate` would do, a line for each migration. Changes nothing."""

    async def look(storage: Storage) -> tuple[SchemaStatus, list[str]]:
        return await storage.schema(), list(await storage.plan())

    config = call.config()
    found, lines = with_any_schema(config, look, create=True)
    if call.out.as_json:
        url = masked(url_of(config))
        call.out.data({"url": url, "current": found.current, "newest": found.newest, "plan": lines})
        return
    for line in lines:
        call.out.line(line)
    if not lines:
        call.out.say(f"nothing to do: schema {found.current} of {found.newest}")


@db.verb("sql", "treadle db sql --url postgresql://db/shop > upgrade.sql", "treadle db sql --all")
@click.option("--all", "everything", is_flag=True, help="All migrations from the first on; asks no database.")
def sql(call: Invocation, everything: bool) -> None:
    """Print the SQL of the pending migrations. For whoever runs it by hand: in one transaction, with its own record of
    what was applied."""

    async def look(storage: Storage) -> tuple[int, str]:
        current = 0 if everything else (await storage.schema()).current
        return current, storage.sql(current)

    config = call.config()
    current, text = with_any_schema(config, look, create=True)
    if call.out.as_json:
        call.out.data({"url": masked(url_of(config)), "after": current, "sql": text})
    elif text:
        call.out.line(text.rstrip("\n"))
    else:
        call.out.say(f"nothing to do: schema {current} is the newest")


@db.verb("roles", "treadle db roles --url postgresql://db/shop | psql", "treadle db roles --prefix shop")
@click.option("--prefix", default="treadle", show_default=True, help="What the names begin with: PREFIX_worker.")
def roles(call: Invocation, prefix: str) -> None:
    """Print the SQL that makes the roles owner, migrator, worker, enqueuer and viewer. To be run by the database's
    owner after the first migration, and again after every other."""

    async def look(storage: Storage) -> str | None:
        try:
            return storage.roles(prefix)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--prefix") from None

    config = call.config()
    text = with_any_schema(config, look, create=True)
    url = masked(url_of(config))
    if text is None:
        raise ConfigError(f"{url} has no roles: who may use it is decided elsewhere")
    if call.out.as_json:
        call.out.data({"url": url, "sql": text})
    else:
        call.out.line(text.rstrip("\n"))


@db.verb("migrate", "treadle db migrate", "treadle db migrate --url sqlite:////srv/treadle.db")
def migrate(call: Invocation) -> None:
    """Bring the schema to the newest version, and make the database if there is none. Safe to run twice, or at once."""
    config = call.config()
    found = with_any_schema(config, lambda storage: storage.migrate(), create=True)
    _tell(call, url_of(config), found)


@db.verb("backup", "treadle db backup /var/backups/treadle.db")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
def backup(call: Invocation, path: Path) -> None:
    """Write a consistent copy to PATH, while everything runs. A file that is there is never overwritten."""
    if path.exists():
        raise click.UsageError(f"{path} exists, and a backup overwrites nothing; choose another name")
    if not path.absolute().parent.is_dir():
        raise click.UsageError(f"there is no folder {path.absolute().parent}")

    async def work(app: App) -> None:
        try:
            await app.storage.backup(str(path))
        except ValueError as error:
            raise ConfigError(str(error)) from error

    with_storage(call.config(), work)
    size = path.stat().st_size
    if call.out.as_json:
        call.out.data({"path": str(path), "bytes": size})
    else:
        call.out.line(f"{path}  {size:,} bytes")


def _tell(call: Invocation, url: str, status: SchemaStatus) -> None:
    if call.out.as_json:
        call.out.data(
            {"url": masked(url), "current": status.current, "newest": status.newest, "pending": list(status.pending)}
        )
        return
    call.out.line(f"{masked(url)}  schema {status.current} of {status.newest}")
    for each in status.pending:
        call.out.line(f"  pending: {each}")
    if status.current < status.newest:
        call.out.say("run `treadle db migrate`")
