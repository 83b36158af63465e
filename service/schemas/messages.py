"""The schemas of messages: events, starts and commands, generated from the structs that decode them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.bus.commands import TELLS, StartRun
from callboard.bus.events import TYPES, Event
from callboard.runtime.admission.large_starts import BLOBS, MEMBERS
from callboard.service.schemas.published import each, publish_schema, unique

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/{name}"


def events_schema() -> dict[str, Any]:
    """Return the schema of an event in the log.

    Unknown event types and members are allowed, since a newer version may add them. The payload of an event with parts
    stored separately (``blobs``) contains markers in their places, and is not checked.
    """
    (envelope,), defs = components([Event])
    payloads, more = components(list(TYPES.values()))
    inner = defs.pop("Event")
    whole = {"type": "array", "maxItems": 0}
    cases = [
        {
            "if": {
                "properties": {"type": {"const": name}, "blobs": whole},
                "required": ["type"],
            },
            "then": {"properties": {"payload": payload}},
        }
        for name, payload in zip(TYPES, payloads, strict=True)
    ]
    assert envelope == {"$ref": REF.format(name="Event")}
    about = {"$schema": DIALECT, "title": "An event of Callboard"}
    return {**about, **_without_title(inner), "allOf": cases, "$defs": {**defs, **more}}


def start_schema() -> dict[str, Any]:
    """Return the schema of a start message."""
    (_,), defs = components([StartRun])
    whole = _without_title(defs.pop("StartRun"))
    beside = {"propertyNames": {"pattern": rf"^({'|'.join(MEMBERS)}|files\..+)$"}}
    blobs = {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]{64}$"}, **beside}
    whole["properties"] = {**whole["properties"], BLOBS: blobs}
    return {"$schema": DIALECT, "title": "A start message of Callboard", **whole, "$defs": defs}


def tells_schema() -> dict[str, Any]:
    """Return the schemas of the commands to runs, by verb."""
    schemas, defs = components(list(TELLS.values()))
    named = {"properties": dict(zip(TELLS, schemas, strict=True)), "additionalProperties": False}
    return {"$schema": DIALECT, "title": "Commands to runs, by verb", "type": "object", **named, "$defs": defs}


def components(types: Sequence[Any], ref: str = REF) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the schemas of types, and those that they refer to; ``ref`` is the template of references.

    The keyword `discriminator` is removed: it is not part of JSON Schema, and constants tag the members of a union.
    """
    schemas, defs = msgspec.json.schema_components(types, ref_template=ref)
    defs, named = unique(defs)
    places = {ref.format(name=old): ref.format(name=new) for old, new in named.items()}

    def change(schema: dict[str, Any]) -> dict[str, Any]:
        schema = {name: value for name, value in schema.items() if name != "discriminator"}
        return {**schema, "$ref": places[schema["$ref"]]} if "$ref" in schema else schema

    def made(schema: Any) -> Any:
        return _in_one_line(publish_schema(each(schema, change)))

    return [made(one) for one in schemas], {name: made(one) for name, one in defs.items()}


def _in_one_line(schema: Any) -> Any:
    """Return a schema whose descriptions have no line breaks."""
    if isinstance(schema, list):
        return [_in_one_line(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: " ".join(one.split()) if name == "description" and isinstance(one, str) else _in_one_line(one)
        for name, one in schema.items()
    }


def _without_title(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != "title"}
