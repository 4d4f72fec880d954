"""`treadle db`: the storage itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config import masked
from ..core.errors import ConfigError
from .command import Invocation, Verbs
from .errors import DONE, REFUSED
from .target import url_of, with_any_schema

if TYPE_CHECKING:
    from ..ports import SchemaStatus, Storage

db = Verbs("db", help="The storage itself.", examples=("treadle db status", "treadle db backup before-upgrade.db"))


@db.verb("status", "treadle db status", "treadle db status --url sqlite:////srv/treadle.db --json")
def status(call: Invocation) -> int:
    """Say which schema the storage has, and which this version brings. Exit code 78 if it must be migrated first."""
    config = call.config()
    found = with_any_schema(config, lambda storage: storage.schema())
    _tell(call, url_of(config), found)
    return DONE if found.current >= found.newest else REFUSED


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

    async def copy(storage: Storage) -> None:
        try:
            await storage.backup(str(path))
        except ValueError as error:
            raise ConfigError(str(error)) from error

    with_any_schema(call.config(), copy)
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
