"""Node types as people and machines read them."""

from collections.abc import Iterable, Mapping
from typing import Any

import click
import msgspec
from msgspec.structs import asdict

from callboard.languages.node_types import Field, NodeSpec, NodeType, NodeTypes
from callboard.languages.problems import hint_at
from callboard.service.operations.results import compact
from callboard.surfaces.cli.output import say, style

PARTS = ("configurations", "input_params", "output_params")

VALUE_CHARS_MAX = 60
"""How much of a default a table shows."""


def list_nodes(types: NodeTypes, *, as_json: bool) -> None:
    """Print every type with its subtypes; those without a table in parentheses."""
    if as_json:
        say(compact({"types": {name: _type_object(types.of(name)) for name in types.names}}))
        return
    for name in types.names:
        known = types.of(name)
        bare = [f"({subtype})" for subtype in known.unspecified]
        say(f"{style(name, bold=True)}\n  {' '.join([*known.subtypes, *bare])}")


def show_nodes(types: NodeTypes, name: str, *, as_json: bool) -> None:
    """Print the subtypes of a type, or the fields of a subtype.

    :raises click.UsageError: if none exists of this name
    """
    type, _, subtype = name.upper().partition(".")
    if type not in types.names:
        raise _unknown_type(name, types.names)
    specs = types.of(type).subtypes
    if not subtype:
        if as_json:
            say(compact(_type_object(types.of(type))))
            return
        for spec in specs.values():
            required = [key for key, field in spec.configurations.items() if field.required]
            say(f"{spec.subtype.ljust(max(map(len, specs)))}  needs {', '.join(required) or 'nothing'}")
        return
    if subtype not in specs:
        raise _unknown_type(name, [f"{type}.{known}" for known in specs])
    if as_json:
        say(compact(_spec_object(specs[subtype])))
        return
    _show(specs[subtype], types.common)


def _unknown_type(name: str, known: Iterable[str]) -> click.UsageError:
    return click.UsageError(f"there is no node type {name}{hint_at(name.upper(), known)}")


def _show(spec: NodeSpec, common: Mapping[str, Field]) -> None:
    for part in PARTS:
        fields: dict[str, Field] = getattr(spec, part)
        if part == "configurations":
            fields = {**fields, **common}
        say(style(part, bold=True))
        width = max(map(len, fields), default=0)
        for key, field in fields.items():
            say(f"  {key.ljust(width)}  {_describe_field(field)}")


def _describe_field(field: Field) -> str:
    """Say in a line what a field is."""
    words = [field.type]
    if field.required:
        words.append("required")
    if field.options:
        words.append(f"of {' '.join(field.options)}")
    if field.min is not None:
        words.append(f"from {field.min:g}" + (f" to {field.max:g}" if field.max is not None else ""))
    if field.default not in ("", 0, [], {}, None):
        value = msgspec.json.encode(field.default).decode()
        words.append(f"= {value if len(value) <= VALUE_CHARS_MAX else value[: VALUE_CHARS_MAX - 1] + '…'}")
    return ", ".join(words)


def _type_object(known: NodeType) -> dict[str, Any]:
    return {
        "subtypes": {subtype: _spec_object(spec) for subtype, spec in known.subtypes.items()},
        "unspecified": list(known.unspecified),
    }


def _spec_object(spec: NodeSpec) -> dict[str, Any]:
    told: dict[str, Any] = {"type": spec.type, "subtype": spec.subtype, "title": spec.title}
    for part in PARTS:
        fields: dict[str, Field] = getattr(spec, part)
        told[part] = {key: _field_object(field) for key, field in fields.items()}
    return told


def _field_object(field: Field) -> dict[str, Any]:
    kept = ("type", "default")
    return {name: one for name, one in asdict(field).items() if name in kept or one not in (None, False, ())}
