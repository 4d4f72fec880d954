"""JSON Schema of a task's arguments, for forms and for callers in other languages."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import msgspec

from ..tasks.batch import ITEM
from ..tasks.task import BatchTask, Task


def schema_of(task: Task[..., Any]) -> dict[str, Any]:
    """An object with one property for each parameter; a type that cannot be described is left open."""
    parameters = list(inspect.signature(task.function).parameters.values())
    if task.takes_context:
        parameters = parameters[1:]
    try:
        hints = typing.get_type_hints(task.function, include_extras=True)
    except Exception:  # an annotation names something that is not there at run time
        hints = {}
    if isinstance(task, BatchTask):  # a job has one item of the list
        parameters = [inspect.Parameter(ITEM, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        hints = {ITEM: task.item()}
    properties: dict[str, Any] = {}
    required: list[str] = []
    defined: dict[str, Any] = {}
    for each in parameters:
        found, more = _described(hints.get(each.name, Any))
        if each.kind is each.VAR_POSITIONAL:
            found = {"type": "array", "items": found}
        elif each.kind is each.VAR_KEYWORD:
            found = {"type": "object", "additionalProperties": found}
        elif each.default is each.empty:
            required.append(each.name)
        else:
            found = {**found, **_default(each.default)}
        defined |= more
        properties[each.name] = found
    whole: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    whole["additionalProperties"] = False
    return {**whole, "$defs": defined} if defined else whole


def _described(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if kind is Any:
        return {}, {}
    try:
        (found,), more = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    except Exception:  # a type of somebody else's
        return {}, {}
    return found, more


def _default(value: Any) -> dict[str, Any]:
    try:
        return {"default": msgspec.to_builtins(value)}
    except Exception:
        return {}
