"""The OpenAPI document of the engine's interface, generated from its routes: ``/v2/openapi.json``."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from callboard.features.access.subject import Scope
from callboard.service.schemas.published import publish_schema
from callboard.surfaces.engine.engine_requests import Handler

Fields = Mapping[str, str]
"""Types of JSON Schema by name; a required name ends with an asterisk."""


class EngineOperation(Struct, frozen=True):
    """An operation: requests of a ``method`` to a ``path`` are answered by a handler, for callers with the ``scope``.

    ``query`` and ``body`` have the fields of the request; ``body`` is None without one. ``media`` is the type of the
    answer.
    """

    method: str
    path: str
    scope: Scope
    handler: Handler
    query: Fields = field(default_factory=dict[str, str])
    body: Fields | None = None
    media: str = "application/json"


def document(operations: Sequence[EngineOperation], version: str) -> dict[str, Any]:
    """Return the OpenAPI document of some operations."""
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    detail = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
    error = publish_schema({"type": "object"})
    refusal = {"type": "object", "properties": {"error": error}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Workflow Engine V2",
            "version": version,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {"Detail": detail, "Refusal": refusal},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


def _operation(one: EngineOperation) -> dict[str, Any]:
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", one.path)
    ]
    query = [
        {"name": name, "in": "query", "schema": publish_schema({"type": kind})} for name, kind in one.query.items()
    ]
    answered = publish_schema({"type": "string" if one.media != "application/json" else "object"})
    wrong = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("Detail", "Refusal")]}
    told = " ".join((one.handler.__doc__ or "").split()).partition("``: ")[2]
    found: dict[str, Any] = {
        "operationId": f"{one.method.lower()}{re.sub(r'[^a-z0-9]+', '_', one.path)}".strip("_"),
        **({"summary": told} if told else {}),
        "parameters": [*path, *query],
        "responses": {
            "200": {"description": "The answer.", "content": {one.media: {"schema": answered}}},
            "4XX": {"description": "An error.", "content": {"application/json": {"schema": wrong}}},
            "5XX": {"description": "An error.", "content": {"application/json": {"schema": wrong}}},
        },
    }
    if one.body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": _object(one.body)}}}
    return found


def _object(fields: Fields) -> dict[str, Any]:
    properties = {name.rstrip("*"): publish_schema({"type": kind}) if kind else {} for name, kind in fields.items()}
    needed = [name.rstrip("*") for name in fields if name.endswith("*")]
    return {"type": "object", "properties": properties, **({"required": needed} if needed else {})}
