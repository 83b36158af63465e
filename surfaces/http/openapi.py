"""Generates the OpenAPI document from the routes, and from the types of the operations' requests and answers."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from callboard.bus.effects import Failure
from callboard.lib.installed import version
from callboard.service.schemas.messages import components
from callboard.service.schemas.published import without_defaults
from callboard.surfaces.http.routes import ROUTES, HttpRoute, Kind, signature_of

_TYPES: Mapping[Kind, dict[str, Any]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "list": {"type": "array", "items": {"type": "string"}},
}
_REF = "#/components/schemas/{name}"
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "problems": {"type": "array", "items": {"$ref": _REF.format(name="Problem")}},
            },
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}
_WRONG = {"description": "An error.", "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}}


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document of ``/api/{tenant}/…``."""
    answers = {route.operation: signature_of(route.operation).answer for route in ROUTES if not route.media}
    shapes = {**answers, **{f"{route.method} {route.path}": route.body for route in ROUTES if route.body is not None}}
    schemas, named = components([*shapes.values(), Failure], _REF)
    named = {name: without_defaults(schema) for name, schema in named.items()}
    found = dict(zip(shapes, schemas, strict=False))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(f"/api/{{tenant}}{route.path}", {})[route.method.lower()] = _operation(route, found)
    paths["/api/{tenant}/live"] = {"get": _live()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Callboard",
            "version": version("callboard"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**named, "Error": _ERROR},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"bearer": []}],
    }


_FILE = {"application/json": {"type": "object", "additionalProperties": True}}
"""Schemas of exported files, by media type. All others are text."""


def _operation(route: HttpRoute, schemas: Mapping[str, Any]) -> dict[str, Any]:
    names = ["tenant", *re.findall(r"{(\w+)}", route.path)]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if name == "n" else "string"}}
        for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "schema": _TYPES[kind], **({"explode": False} if kind == "list" else {})}
        for name, kind in route.query.items()
    ]
    if route.operation in ("start", "fork", "tell"):
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}})
    content: dict[str, Any] = (
        {route.media: {"schema": _FILE.get(route.media, {"type": "string"})}}
        if route.media
        else _json(schemas[route.operation])
    )
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-z]+', '_', route.path)}".strip("_"),
        "summary": signature_of(route.operation).summary,
        "parameters": parameters,
        "responses": {
            str(route.status): {"description": "The answer.", "content": content},
            "4XX": _WRONG,
            "5XX": _WRONG,
        },
    }
    if route.body is not None:
        required = route.operation != "tell"
        operation["requestBody"] = {"required": required, "content": _json(schemas[f"{route.method} {route.path}"])}
    return operation


def _live() -> dict[str, Any]:
    query = ("run", "type", "definition", "topics")
    text = {"type": "string"}
    return {
        "operationId": "get_live",
        "summary": "Events as they are recorded, as server-sent events whose ids are stream sequences.",
        "parameters": [
            {"name": "tenant", "in": "path", "required": True, "schema": text},
            *({"name": name, "in": "query", "schema": text} for name in query),
            {"name": "topic", "in": "query", "schema": {"type": "array", "items": text}},
            {"name": "after", "in": "query", "schema": {"type": "integer"}},
            {"name": "Last-Event-ID", "in": "header", "schema": {"type": "integer"}},
        ],
        "responses": {
            "200": {"description": "Events, without end.", "content": {"text/event-stream": {"schema": text}}},
            "4XX": _WRONG,
            "5XX": _WRONG,
        },
    }


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
