"""OpenAPI 3.1, made from the routes as they are declared. The file in docs/reference is this, committed."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import cleandoc
from typing import Any, Final

import msgspec
from msgspec import Struct

from .. import __version__
from .problem import STATUS
from .routing import Route

REF: Final = "#/components/schemas/{name}"
MEANINGS: Final = {
    400: "What was sent makes no sense; the message says what.",
    401: "Log in first.",
    403: "The role may not do this, it is read-only here, or the request may come from another site's page.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "It came too late: `fields` says what is true now.",
    413: "The body is too large.",
    415: "The body is not of the type that is asked for.",
    421: "This host name is not served here.",
    429: "Too many; see Retry-After.",
    501: "This storage, or this version, cannot.",
    503: "The storage is away, or too slow; see Retry-After.",
}
_EVERYWHERE: Final = (400, 401, 403, 404, 421, 503)
_WITH_BODY: Final = (408, 413, 415, 429)


class Error(Struct, kw_only=True):
    """A message never holds SQL, a path or a secret. `request_id` is in the server's log."""

    kind: str
    message: str
    code: str
    fields: dict[str, Any]
    request_id: str


class Problem(Struct):
    error: Error


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole API. Pages are not in it."""
    shown = [route for route in routes if route.kind == "api"]
    kinds = [Problem, *_kinds(shown)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    for each in components.values():
        if "description" in each:
            # As Python 3.13 has it by itself; without the example, which is for the prompt.
            each["description"] = cleandoc(each["description"]).partition("\n\n>>>")[0]
    by_kind = {_key(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Treadle",
            "version": __version__,
            "description": "Everything that the dashboard does, for programs. Lists page by cursor; instants are RFC "
            "3339 in UTC with milliseconds, durations are seconds; a mutation may be sent again.",
        },
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "treadle"},
            },
        },
    }


def text(routes: Iterable[Route]) -> str:
    """The document as it is committed."""
    return msgspec.json.format(msgspec.json.encode(document(routes), order="sorted"), indent=1).decode() + "\n"


def _kinds(routes: list[Route]) -> list[Any]:
    found: dict[str, Any] = {}
    for route in routes:
        for kind in (route.query, route.body, *route.answers):
            if kind is not None:
                found[_key(kind)] = kind
    return list(found.values())


def _key(kind: Any) -> str:
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', kind)}"


def _operation(route: Route, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.removeprefix("/api/v1/").split("/")[0].lstrip("/").removesuffix(".csv")],
        "responses": _responses(route, schemas),
    }
    told["x-action"] = "public" if route.action is None else route.action
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.names
    ]
    if route.query is not None:
        parameters += _parameters(route.query, schemas[_key(route.query)], components)
    if parameters:
        told["parameters"] = parameters
    if not route.is_safe and route.body is not None:
        schema = schemas[_key(route.body)]
        required = bool(_resolved(schema, components).get("required")) or "$ref" not in schema
        told["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    if route.is_public:
        told["security"] = []
    return told


def _parameters(kind: Any, schema: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    whole = _resolved(schema, components)
    required = set(whole.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _not_null(each)}
        for name, each in whole["properties"].items()
    ]


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that may be left out is not sent as null."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not options:
        return schema
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default") or value is not None}
    rest.pop("anyOf", None)
    return {**rest, **options[0]} if len(options) == 1 else {**rest, "anyOf": options}


def _resolved(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return components[name] if name else schema


def _responses(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    found = [schemas[_key(each)] for each in route.answers]
    if not found:
        content: dict[str, Any] = (
            {"schema": {"type": "string"}} if route.media != "application/json" else {"schema": {}}
        )
    else:
        content = {"schema": found[0] if len(found) == 1 else {"anyOf": found}}
    told: dict[str, Any] = {str(route.status): {"description": "Done.", "content": {route.media: content}}}
    statuses = {*_EVERYWHERE, *route.problems, *(() if route.is_safe else _WITH_BODY)}
    for status in sorted(statuses):
        told[str(status)] = {
            "description": MEANINGS[status],
            "content": {"application/json": {"schema": schemas[_key(Problem)]}},
        }
    return told


assert set(MEANINGS) <= set(STATUS.values())
