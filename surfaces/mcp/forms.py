"""Forms: convert a run's question to a form of MCP (elicitation), and the filled-in form to an answer of the question.

A form is a flat object of text, numbers, yes or no, and choices. A question that does not fit is not asked this way: it
waits for answer_question, as all questions do if the client does not support forms.
"""

from collections.abc import Mapping
from typing import Any

from callboard.lib.json_types import JSON
from callboard.projections.lists.questions import Question

RESPONSE = "response"
"""The member of a form with the answer, if the answer is a single value."""

_PLAIN = ("string", "number", "integer", "boolean")
_KEPT = ("type", "title", "description", "minLength", "maxLength", "minimum", "maximum", "default", "enum", "format")
_FORMATS = ("email", "uri", "date", "date-time")


def form_of(question: Question) -> dict[str, Any] | None:
    """Return the schema of a question's form, None if no form can express it."""
    if question.options:
        labels = [one.label for one in question.options]
        return _form({RESPONSE: {"type": "string", "enum": labels}}) if len(set(labels)) == len(labels) else None
    if not question.schema:
        return _form({RESPONSE: {"type": "string"}})
    match question.schema:
        case {"type": "object", "properties": dict(properties), **more} if properties:
            fields = {name: _field(schema) for name, schema in properties.items()}
            known: Any = {name: field for name, field in fields.items() if field is not None}
            return _form(known, more.get("required", [])) if len(known) == len(fields) else None
        case schema:
            field = _field(schema)
            return None if field is None else _form({RESPONSE: field})


def response_of(question: Question, content: Mapping[str, Any]) -> JSON:
    """Return the answer in a filled-in form."""
    if RESPONSE not in content and not question.options:
        return dict(content)
    answer = content.get(RESPONSE)
    return next((one.value for one in question.options if one.label == answer), answer)


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
