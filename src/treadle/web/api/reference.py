"""The API's own description: OpenAPI, and a page to read it that needs nothing from anywhere else."""

from __future__ import annotations

from html import escape
from typing import Any

from starlette.responses import HTMLResponse, Response

from ..openapi import document
from ..plain import JSON
from ..routing import BASE, Call, Route, Routes

routes = Routes()


@routes.api("GET", "/openapi.json", action="see")
async def openapi(call: Call[None, None]) -> Response:
    """OpenAPI 3.1 of this API."""
    found = document(call.web.table.routes)
    prefix = call.url("")
    return JSON({**found, "servers": [{"url": prefix or "/"}]})


@routes.page("GET", "/api", action="see")
async def page(call: Call[None, None]) -> Response:
    """The API to read: every route with what it takes, and who may."""
    shown = [route for route in call.web.table.routes if route.kind == "api"]
    whole = document(shown)
    parts: list[str] = []
    for route in sorted(shown, key=lambda each: (each.path, each.method)):
        parts.append(_section(route, whole["paths"][route.path][route.method.lower()], whole["components"]["schemas"]))
    body = "\n".join(parts)
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Treadle API</title>'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark"></head><body>'
        f"<h1>Treadle API</h1><p>Under <code>{escape(call.url(BASE))}</code>. The same as "
        f'<a href="{escape(call.url(BASE + "/openapi.json"))}">OpenAPI 3.1</a>. Send a token as '
        "<code>Authorization: Bearer …</code>.</p>"
        f"{body}</body></html>"
    )
    return HTMLResponse(html)


def _section(route: Route, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [
        (each["name"], each["in"], _kind(each["schema"]), each["schema"].get("description", ""))
        for each in operation.get("parameters", ())
    ]
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        for name, each in _properties(schema, schemas).items():
            rows.append((name, "body", _kind(each), each.get("description", "")))
    table = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    head = "<tr><th>name</th><th>in</th><th>type</th><th>meaning</th></tr>"
    shown = f"<table>{head}{table}</table>" if rows else ""
    action = "public" if route.action is None else route.action
    return (
        f"<section><h2><code>{route.method} {escape(route.path)}</code></h2><p>{escape(route.summary)}</p>"
        f"<p>Needs: <code>{escape(action)}</code></p>{shown}</section>"
    )


def _properties(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _properties(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for each in schema.get("anyOf", ()):
        if found := _properties(each, schemas):
            return found
    return dict(schema.get("properties", {}))


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return str(schema.get("type", "any"))
