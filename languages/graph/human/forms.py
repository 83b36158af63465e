"""Forms: the JSON Schema of a response to a HUMAN_IN_THE_LOOP node. Pure."""

from collections.abc import Mapping
from typing import Any

from callboard.bus.answer_schemas import answer_schema
from callboard.languages.graph.human.interaction import Interaction
from callboard.lib.json_types import JSON

_TYPES = {
    "number": "number",
    "float": "number",
    "integer": "integer",
    "int": "integer",
    "boolean": "boolean",
    "checkbox": "boolean",
}
"""JSON types by the types that fields declare; any other type is a string."""


def schema_of(interaction: Interaction) -> JSON:
    """Return the JSON Schema of a response: an object with the requested fields, or one of the options."""
    review = interaction.review
    if interaction.type in ("approval", "review") and (review.evidence or review.score is not None):
        return _review_schema(interaction)
    fields = interaction.request_data.get("input_fields")
    named = [one for one in fields if isinstance(one, dict) and isinstance(one.get("name"), str)] if fields else []
    if not named:
        return answer_schema(interaction.options)
    found: dict[str, JSON] = {
        "type": "object",
        "properties": {one["name"]: _field(one) for one in named},
    }
    if required := [one["name"] for one in named if one.get("required")]:
        found["required"] = required
    return found


def _review_schema(interaction: Interaction) -> JSON:
    """Return the schema of an answer that has to bring evidence or a score."""
    review = interaction.review
    properties: dict[str, JSON] = {"action": answer_schema(interaction.options), "comment": {"type": "string"}}
    required = ["action"]
    if review.score is not None:
        properties["score"] = {"type": "number", "minimum": review.score[0], "maximum": review.score[1]}
        required = ["score"]
    if review.evidence:
        properties["evidence"] = {"type": "string", "title": "Evidence"}
        required.append("evidence")
    return {"type": "object", "properties": properties, "required": required}


def _field(field: Mapping[str, Any]) -> JSON:
    texts = {"title": field.get("label"), "description": field.get("description") or field.get("placeholder")}
    schema: dict[str, JSON] = {name: text for name, text in texts.items() if isinstance(text, str) and text}
    if isinstance(options := field.get("options"), list) and options:
        return {**answer_schema(options), **schema}
    return {"type": _TYPES.get(str(field.get("type", "")).lower(), "string"), **schema}
