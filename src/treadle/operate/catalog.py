"""`app.catalog`: what code says of its tasks and queues."""

from __future__ import annotations

from collections.abc import Sequence

from ..client.client import Client
from ..core import catalog
from ..core.view import TaskView, task_view


class Catalog:
    """`app.catalog`: what pods say of the tasks they know, those of former deployments among them.

    >>> [task.name for task in app.catalog.tasks_sync()]
    ['send']
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tasks(self) -> Sequence[TaskView]:
        """All known tasks by name, with who owns them, which live pods know them and where those disagree."""
        entries = await self._client.ask(lambda storage: storage.catalog())
        pods = await self._client.ask(lambda storage: storage.pods())
        now = await self._client.ask(lambda storage: storage.time())
        return [task_view(known) for known in catalog.survey("task", entries, pods, now)]

    async def task(self, name: str) -> TaskView | None:
        """One task; None if no pod has ever told of it."""
        return next((task for task in await self.tasks() if task.name == name), None)

    def tasks_sync(self) -> Sequence[TaskView]:
        return self._client.run_sync(self.tasks())

    def task_sync(self, name: str) -> TaskView | None:
        return self._client.run_sync(self.task(name))
