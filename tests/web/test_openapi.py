"""The API described by its own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.web import openapi
from treadle.web.tables import api_routes

from .world import World

COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def test_the_committed_file_is_not_old() -> None:
    assert COMMITTED.read_text() == openapi.text(api_routes()), "run `make docs`"


def test_every_route_is_described() -> None:
    document: Any = json.loads(COMMITTED.read_text())
    for route in api_routes():
        if route.kind != "api":
            continue
        told = document["paths"][route.path][route.method.lower()]
        assert told["summary"] and told["operationId"] and str(route.status) in told["responses"]
        assert told["x-action"] == (route.action or "public")
        assert (told.get("security") == []) is route.is_public
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids))


def _refs(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [value["$ref"]] if "$ref" in value else [ref for each in value.values() for ref in _refs(each)]
    return [ref for each in value for ref in _refs(each)] if isinstance(value, list) else []


def test_every_reference_leads_somewhere() -> None:
    document: Any = json.loads(COMMITTED.read_text())
    for ref in _refs(document):
        assert ref.removeprefix("#/components/schemas/") in document["components"]["schemas"], ref


@pytest.mark.anyio
async def test_it_is_served_with_a_page_to_read_it(world: World) -> None:
    found = (await world.get("/openapi.json", "viewer")).json()
    assert found["openapi"] == "3.1.0" and "/api/v1/jobs/{id}/revive" in found["paths"]
    page = await world.http.get("/api", headers={"X-Role": "viewer"})
    assert page.status_code == 200 and "POST /api/v1/jobs/{id}/revive" in page.text
    assert "http" not in page.text.replace("http-", "").replace("HTTP", "").split("<section>")[0].split("</title>")[1]
