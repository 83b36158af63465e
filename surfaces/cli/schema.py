"""``callboard schema`` and ``callboard LANGUAGE nodes``: JSON Schemas, and the node types of a language."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli.output import print_answer, style
from callboard.surfaces.cli.settings import Settings, json_option, settings_options

if TYPE_CHECKING:
    from callboard.languages.node_types import Field, NodeSpec, NodeType, NodeTypes
    from callboard.surfaces.cli.code_files import Part

PARTS_OF_CODE = ("input", "output")


@click.command()
@click.argument("name", metavar="[NAME|FILE.py[:NAME]]", required=False)
@click.option(
    "--of",
    "part",
    type=click.Choice(PARTS_OF_CODE),
    help="With FILE.py: the part of a run that the schema describes; default: input.",
)
@json_option
def schema(name: str | None, part: "Part | None", as_json: bool) -> None:
    """Print a JSON Schema: for events, starts, commands, scripts, the configuration or documents.

    Without NAME, list the schemas. `asyncapi` is an AsyncAPI document of all subjects. With FILE.py:NAME, print the
    schema of the input, or the output, of a workflow in Python; the file is imported.

    \b
    callboard schema events > events.json
    callboard schema triage.py:triage --of output
    """
    from callboard.runtime.client.errors import UsageInvalid
    from callboard.runtime.hosting.names import split_code_name
    from callboard.service.operations.results import pretty
    from callboard.service.schemas.catalog import names, schema_named

    code = None if name is None else split_code_name(name)
    if part is not None and code is None:
        raise UsageInvalid("needs a workflow in Python: FILE.py:NAME or MODULE:NAME", "--of")
    if name is None:
        print_answer(names(), names(), as_json=as_json)
        return
    if code is not None:
        from callboard.surfaces.cli.code_files import schema_of

        found = schema_of(*code, part or "input")
    else:
        try:
            found = schema_named(name)
        except KeyError:
            raise UsageInvalid(f"unknown schema {name!r}; expected one of {', '.join(names())}", "NAME") from None
    print_answer(found, pretty(found), as_json=as_json)


def node_types_command(language: str, sentence: str) -> click.Command:
    """Return the command of a language with node types; its help begins with a sentence."""

    @click.command(language)
    @click.argument("what", type=click.Choice(["nodes"]))
    @click.argument("name", metavar="[TYPE[.SUBTYPE]]", required=False)
    @settings_options
    def command(what: str, name: str | None, settings: Settings) -> None:
        from callboard.languages.registry import authoring

        types = authoring(language).node_types
        assert what == "nodes"
        assert types is not None
        if name is None:
            list_nodes(types, as_json=settings.as_json)
        else:
            show_nodes(types, name, as_json=settings.as_json)

    command.help = f"{sentence}\n\nNeeds no server."
    return command


PARTS = ("configurations", "input_params", "output_params")

VALUE_CHARS_MAX = 60
"""How many characters of a default a table shows."""


def list_nodes(types: "NodeTypes", *, as_json: bool) -> None:
    """Print every type with its subtypes; subtypes without a table of fields are in parentheses."""
    known = {name: types.of(name) for name in types.names}
    lines = [
        f"{style(name, bold=True)}\n  {' '.join([*one.subtypes, *(f'({subtype})' for subtype in one.unspecified)])}"
        for name, one in known.items()
    ]
    print_answer({"types": {name: _type_object(one) for name, one in known.items()}}, lines, as_json=as_json)


def show_nodes(types: "NodeTypes", name: str, *, as_json: bool) -> None:
    """Print the subtypes of a type, or the fields of a subtype.

    :raises click.UsageError: if the name is unknown
    """
    type, _, subtype = name.upper().partition(".")
    if type not in types.names:
        raise _unknown_type(name, types.names)
    specs = types.of(type).subtypes
    if not subtype:
        width = max(map(len, specs), default=0)
        needs = {
            spec.subtype: [key for key, field in spec.configurations.items() if field.required]
            for spec in specs.values()
        }
        lines = [f"{one.ljust(width)}  needs {', '.join(required) or 'nothing'}" for one, required in needs.items()]
        print_answer(_type_object(types.of(type)), lines, as_json=as_json)
    elif subtype in specs:
        print_answer(_spec_object(specs[subtype]), _field_lines(specs[subtype], types.common), as_json=as_json)
    else:
        raise _unknown_type(name, [f"{type}.{known}" for known in specs])


def _unknown_type(name: str, known: Iterable[str]) -> click.UsageError:
    from callboard.languages.problems import hint_at

    return click.UsageError(f"unknown node type {name}{hint_at(name.upper(), known)}")


def _field_lines(spec: "NodeSpec", common: "Mapping[str, Field]") -> Iterator[str]:
    from callboard.languages.node_types import Field

    for part in PARTS:
        fields: dict[str, Field] = getattr(spec, part)
        if part == "configurations":
            fields = {**fields, **common}
        yield style(part, bold=True)
        width = max(map(len, fields), default=0)
        for key, field in fields.items():
            yield f"  {key.ljust(width)}  {_describe_field(field)}"


def _describe_field(field: "Field") -> str:
    """Describe a field in one line."""
    import msgspec

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
    if field.effect in ("none", "refused"):
        words.append("no effect" if field.effect == "none" else "refused")
    return ", ".join(words)


def _type_object(known: "NodeType") -> dict[str, Any]:
    return {
        "subtypes": {subtype: _spec_object(spec) for subtype, spec in known.subtypes.items()},
        "unspecified": list(known.unspecified),
    }


def _spec_object(spec: "NodeSpec") -> dict[str, Any]:
    from callboard.languages.node_types import Field

    told: dict[str, Any] = {"type": spec.type, "subtype": spec.subtype, "title": spec.title}
    for part in PARTS:
        fields: dict[str, Field] = getattr(spec, part)
        told[part] = {key: _field_object(field) for key, field in fields.items()}
    return told


def _field_object(field: "Field") -> dict[str, Any]:
    from msgspec.structs import asdict

    kept = ("type", "default")
    return {name: one for name, one in asdict(field).items() if name in kept or one not in (None, False, (), "")}
