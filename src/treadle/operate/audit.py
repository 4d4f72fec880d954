"""`app.audit`: what operators have done, and who."""

from __future__ import annotations

from collections.abc import Sequence

from ..client.client import Client, new_id
from ..core import records
from ..core.audit import AuditLine
from ..core.records import AuditView


class Audit:
    """`app.audit`: what operators have done, for 90 days.

    >>> app.audit.note_sync("restart", "the mail server", by="ann")
    >>> app.audit.list_sync(1)[0].subject
    'the mail server'
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self, limit: int = 100, *, before: str | None = None) -> Sequence[AuditView]:
        """The newest lines first; `before` is the id of the line that the last page ended with."""
        lines = await self._client.ask(lambda storage: storage.audit(limit, before))
        return [records.audit_view(line) for line in lines]

    async def note(
        self, act: str, subject: str, *, by: str | None = None, reason: str | None = None, detail: str = ""
    ) -> None:
        """Add a line, for acts that Treadle itself does not see."""
        line = AuditLine(id=new_id(), act=act, subject=subject, by=by, reason=reason, detail=detail)
        await self._client.ask(lambda storage: storage.note((line,)))

    def list_sync(self, limit: int = 100, *, before: str | None = None) -> Sequence[AuditView]:
        return self._client.run_sync(self.list(limit, before=before))

    def note_sync(
        self, act: str, subject: str, *, by: str | None = None, reason: str | None = None, detail: str = ""
    ) -> None:
        self._client.run_sync(self.note(act, subject, by=by, reason=reason, detail=detail))
