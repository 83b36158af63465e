"""Forms: convert a run's question to a form of MCP (elicitation), and the filled-in form to an answer of the question.

A form is a flat object of text, numbers, yes or no, and choices. A member that may be left out and is none of these is
entered as JSON in a text field. A question that does not fit is not asked this way: it waits for answer_question, as
all questions do if the client does not support forms.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON
from callboard.projections.lists.questions import Question

RESPONSE = "response"
"""The member of a form with the answer, if the answer is a single value."""

_PLAIN = ("string", "number", "integer", "boolean")
_KEPT = ("type", "title", "description", "minLength", "maxLength", "minimum", "maximum", "default", "enum", "format")
_FORMATS = ("email", "uri", "date", "date-time")


def form_of(question: Question) -> dict[str, Any] | None:
    """Return the schema of a question's form, None if no form can express it."""
    if question.options and not _members(question.schema):
        labels = [one.label for one in question.options]
        return _form({RESPONSE: {"type": "string", "enum": labels}}) if len(set(labels)) == len(labels) else None
    if not question.schema:
        return _form({RESPONSE: {"type": "string"}})
    match question.schema:
        case {"type": "object", "properties": dict(properties), **more} if properties:
            required: list[str] = more.get("required", [])
            fields = {
                name: _field(schema) or (None if name in required else _json_field(schema))
                for name, schema in properties.items()
            }
            known: Any = {name: field for name, field in fields.items() if field is not None}
            return _form(known, required) if len(known) == len(fields) else None
        case schema:
            field = _field(schema)
            return None if field is None else _form({RESPONSE: field})


def response_of(question: Question, content: Mapping[str, Any]) -> JSON:
    """Return the answer in a filled-in form."""
    members = _members(question.schema)
    if members or (RESPONSE not in content and not question.options):
        return {name: _read_member(members.get(name), value) for name, value in content.items()}
    answer = content.get(RESPONSE)
    return next((one.value for one in question.options if one.label == answer), answer)


def _members(schema: JSON) -> Mapping[str, Any]:
    """Return the schemas of the members of an object; none if a schema describes something else."""
    match schema:
        case {"type": "object", "properties": dict(properties)}:
            return properties
        case _:
            return {}


def _read_member(schema: JSON, value: Any) -> JSON:
    """Return the value of a field; of one that has JSON, the value that it is."""
    if schema is None or _field(schema) is not None or not isinstance(value, str):
        return value
    try:
        return decode_json(value) if value.strip() else None
    except JSON_ERRORS:
        return value


def _json_field(schema: JSON) -> dict[str, Any]:
    told: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    field = {"type": "string", "description": f"{told.get('description') or ''} As JSON.".strip()}
    field |= {"title": str(told["title"])} if "title" in told else {}
    return field | ({"default": msgspec.json.encode(told["default"]).decode()} if "default" in told else {})


def _form(fields: Mapping[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": list(fields) if required is None else required}


def _field(schema: JSON) -> dict[str, Any] | None:
    match schema:
        case {"enum": [*values]} if values and all(isinstance(value, str) for value in values):
            return {"type": "string", "enum": values}
        case {"type": str(kind), **rest} if kind in _PLAIN and not {"enum", "const", "oneOf", "anyOf"} & set(rest):
            found = {name: value for name, value in rest.items() if name in _KEPT}
            if found.get("format") not in _FORMATS:
                found.pop("format", None)
            return {"type": kind, **found}
        case _:
            return None
