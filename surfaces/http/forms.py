"""Turns the JSON Schema of an answer into an HTML form, and the submitted form into the answer. Pure.

A value without a suitable kind of field, such as an object inside an object, is entered as JSON in a text field. Fields
and options are named by their numbers, so that no text of a schema is used as a name in HTML.
"""

import html
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

Kind = Literal["text", "number", "integer", "boolean", "choice", "choices", "json"]

FIELDS_MAX = 200
"""Maximum number of fields of a form; an answer with more members is entered as JSON."""

LONG_CHARS = 120
"""A text that may be longer than this gets a field with several lines."""

_BOOLEANS: tuple[tuple[JSON, str], ...] = ((True, "Yes"), (False, "No"))
_INPUTS: Mapping[str, str] = {"email": "email", "uri": "url", "date": "date", "time": "time"}
"""Types of HTML inputs, by the formats of texts."""


class Field(Struct, frozen=True):
    """A field for the member ``name`` of the answer, or, if ``name`` is None, for the whole answer.

    ``given`` is its content before anybody has filled it in.
    """

    name: str | None
    kind: Kind
    title: str
    hint: str = ""
    required: bool = True
    options: tuple[tuple[JSON, str], ...] = ()
    long: bool = True
    input: str = "text"
    given: str = ""


class Unreadable(Exception):
    """The value of a field is invalid; the message says why."""


def fields_of(schema: JSON, title: str = "Answer") -> list[Field]:
    """Return the fields of a schema."""
    if isinstance(schema, dict) and schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        members: dict[str, Any] = schema["properties"]
        listed = schema.get("required")
        required = listed if isinstance(listed, list) else []
        if 0 < len(members) <= FIELDS_MAX:
            return [_field(name, one, name, required=name in required) for name, one in members.items()]
    return [_field(None, schema, title, required=True)]


def _field(name: str | None, schema: Any, title: str, *, required: bool) -> Field:
    if not isinstance(schema, dict):
        return Field(name, "text", title, required=required)
    told = str(schema.get("title") or title), str(schema.get("description") or "")
    if options := _options(schema):
        return Field(name, "choice", *told, required, options)
    match schema:
        case {"type": "boolean"}:
            return Field(name, "choice", *told, required, _BOOLEANS)
        case {"type": "number"}:
            return Field(name, "number", *told, required)
        case {"type": "integer"}:
            return Field(name, "integer", *told, required)
        case {"type": "array", "items": dict(items)} if options := _options(items):
            return Field(name, "choices", *told, False, options)
        case {"type": "object" | "array"} | {"$ref": _} | {"allOf": _} | {"anyOf": _} | {"oneOf": _}:
            given = msgspec.json.format(msgspec.json.encode(schema["default"])).decode() if "default" in schema else ""
            return Field(name, "json", *told, required, given=given)
        case _:
            longest = schema.get("maxLength")
            kind = _INPUTS.get(str(schema.get("format")), "")
            long = not kind and not (isinstance(longest, int) and longest <= LONG_CHARS)
            return Field(name, "text", *told, required, long=long, input=kind or "text")


def _options(schema: Mapping[str, Any]) -> tuple[tuple[JSON, str], ...]:
    match schema:
        case {"enum": list(values)} if values:
            return tuple((value, _display_text(value)) for value in values)
        case {"oneOf": list(each)} | {"anyOf": list(each)} if each and all(
            isinstance(one, dict) and "const" in one for one in each
        ):
            return tuple((one["const"], str(one.get("title", _display_text(one["const"])))) for one in each)
        case {"const": value}:
            return ((value, _display_text(value)),)
        case _:
            return ()


def _display_text(value: JSON) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# -- submitted forms --------------------------------------------------------------------------------------------------


def answer_of(fields: Sequence[Field], filled: Mapping[str, Sequence[str]]) -> JSON:
    """Return the answer of a submitted form, without the members whose fields are empty.

    :raises Unreadable: if a field has an invalid value, or the field for the whole answer is missing
    """
    found: dict[str, JSON] = {}
    for number, field in enumerate(fields):
        given = [one for one in filled.get(str(number), ()) if one.strip()]
        if field.name is None:
            # Browsers submit empty fields too. Only checkboxes that are not ticked are left out.
            if str(number) not in filled and field.kind != "choices":
                raise Unreadable(f"{field.title}: nothing was filled in")
            return _value(field, given) if given or field.kind == "choices" else ""
        if given or field.kind == "choices":
            found[field.name] = _value(field, given)
    return found


def _value(field: Field, given: Sequence[str]) -> JSON:
    if field.kind == "choices":
        return [_option_value(field, one) for one in given]
    text = given[0]
    try:
        match field.kind:
            case "choice":
                return _option_value(field, text)
            case "integer":
                return int(text)
            case "number":
                number: Any = decode_json(text.strip())
                return msgspec.convert(number, int | float)
            case "json":
                return decode_json(text)
            case _:
                return text.replace("\r\n", "\n")
    except (ValueError, RecursionError):
        kind = {"integer": "a whole number", "number": "a number"}.get(field.kind, "JSON")
        raise Unreadable(f"{field.title}: {text[:80]!r} is not {kind}") from None


def _option_value(field: Field, given: str) -> JSON:
    if not given.isascii() or not given.isdigit() or int(given[:6]) >= len(field.options):
        raise Unreadable(f"{field.title}: {given[:80]!r} is not one of the options")
    return field.options[int(given[:6])][0]


# -- HTML -------------------------------------------------------------------------------------------------------------


def form_html(fields: Sequence[Field], filled: Mapping[str, Sequence[str]]) -> str:
    """Return the fields as HTML, with the values that were entered before."""
    return "\n".join(_field_html(str(i), field, filled.get(str(i), ())) for i, field in enumerate(fields))


def _field_html(number: str, field: Field, given: Sequence[str]) -> str:
    title, hint = html.escape(field.title), f"<small>{html.escape(field.hint)}</small>" if field.hint else ""
    needed = " required" if field.required else ""
    if field.options:
        kind = "checkbox" if field.kind == "choices" else "radio"
        boxes = "\n".join(
            f'<label><input type="{kind}" name="{number}" value="{place}"{needed}'
            f"{' checked' if str(place) in given else ''}> {html.escape(label)}</label>"
            for place, (_, label) in enumerate(field.options)
        )
        return f"<fieldset><legend>{title}</legend>{hint}\n{boxes}\n</fieldset>"
    text = html.escape(given[0] if given else field.given)
    if field.kind in ("number", "integer"):
        step = "1" if field.kind == "integer" else "any"
        box = f'<input type="number" step="{step}" name="{number}" value="{text}"{needed}>'
    elif field.kind == "json" or field.long:
        box = f'<textarea rows="4" name="{number}"{needed}>\n{text}</textarea>'
    else:
        box = f'<input type="{field.input}" name="{number}" value="{text}"{needed}>'
    return f"<label>{title} {hint}\n{box}</label>"
