"""What the login of a storage may read, and how its statements are written then.

Roles (sql/roles.sql) are the database's: an enqueuer has no rights on tables and looks up single jobs by functions; a
viewer reads views that leave out what jobs carry (sql/0017_security.sql). The verbs know nothing of that. Each
statement is written for the tables, and a login that may not read them has it rewritten on its way: the viewer's views
have the columns of their tables, and the enqueuer's functions those of the few statements that look up by id.

A statement that is denied means that grants are not what they were when the storage was opened, or that the verb is not
for this login at all. So what may be read is looked up again, once, before the caller is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from . import find, progress, sql
from .sql import Schema
from .talk import Talk

Sight = Literal["all", "viewer", "enqueuer"]
"""What a login may read: everything; all but what jobs carry; single jobs whose id it has."""

VIEWED: Final = (
    "job",
    "job_history",
    "job_error",
    "job_progress",
    "job_log",
    "answer",
    "schedule",
    "pod",
)
"""The tables that a viewer reads by a view."""

# Names in quotes are for functions about the table itself, such as its size.
_TABLE: Final = re.compile(rf"(?<!')\btreadle\.({'|'.join(VIEWED)})\b")
# Left as it is, and so refused by the table's rights: a view would be refused for some other reason, or not at all.
_WRITES: Final = re.compile(r"\b(?:insert into|update treadle|delete from|for (?:update|share))\b")
_BY_ID: Final = {
    find.GET: sql.call("get_1", "float8, uuid[]"),
    find.KEPT: sql.call("kept_1", "text[]"),
    progress.READ_PROGRESS: sql.call("progress_1", "text[]"),
}
_MAY: Final = """
select
    has_table_privilege(format('%I.job', $1::text), 'select'),
    has_table_privilege(format('%I.viewer_job', $1::text), 'select'),
    has_table_privilege(format('%I.job', $1::text), 'update'),
    has_function_privilege(format('%I.ensure_1(text[], int2[])', $1::text), 'execute')
"""


def look(schema: Schema) -> Talk[tuple[Sight, bool]]:
    """What this login may read, and whether it may write anything."""
    ((reads, views, writes, enqueues),) = yield _MAY, (schema.name,)
    return "all" if reads else "viewer" if views else "enqueuer", bool(writes or enqueues)


def rewriting(sight: Sight) -> Callable[[str], str] | None:
    """How statements are written for a login that sees so much; None: as they are."""
    match sight:
        case "all":
            return None
        case "viewer":
            return lambda text: text if _WRITES.search(text) else _TABLE.sub(r"treadle.viewer_\1", text)
        case "enqueuer":
            return lambda text: _BY_ID.get(text, text)
