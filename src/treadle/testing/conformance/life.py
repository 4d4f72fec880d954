"""Opening, closing, and the schema."""

from __future__ import annotations

from ...ports import Storage
from .builders import want
from .steps import Cases, a_live_pod, look, put, take


class Life(Cases):
    async def test_an_open_storage_has_the_newest_schema(self, storage: Storage) -> None:
        status = await storage.schema()
        assert status.current == status.newest
        assert not status.pending

    async def test_a_migration_may_be_repeated_and_harms_nothing(self, storage: Storage) -> None:
        id = await put(storage)
        await storage.migrate()
        status = await storage.migrate()
        assert status.current == status.newest
        assert (await look(storage, id)).id == id

    async def test_what_was_written_is_there_after_closing_and_opening_again(self, storage: Storage) -> None:
        id = await put(storage, args='{"n":1}')
        await storage.close()
        await storage.open()
        assert (await look(storage, id)).args == '{"n":1}'

    async def test_a_reopened_storage_goes_on_where_it_stopped(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        await take(storage, pod, want())
        await storage.close()
        await storage.open()
        await put(storage)
        assert len(await take(storage, pod, want())) == 1

    async def test_a_storage_tells_facts_for_the_doctor(self, storage: Storage) -> None:
        for fact in await storage.facts():
            assert fact.code
            assert fact.text
            assert fact.level in ("ok", "warn", "error")

    async def test_a_connection_of_an_unknown_kind_is_refused_with_what_to_do(self, storage: Storage) -> None:
        refused = ""
        try:
            storage.borrow(object())
        except Exception as error:
            refused = str(error)
        assert refused
