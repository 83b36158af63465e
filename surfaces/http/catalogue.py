"""What can be started: the registered definitions and their inputs, texts of definitions, and examples."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from anyio import to_thread
from msgspec import Struct

from callboard.bus.commands import Registration
from callboard.bus.nats.registrations import read_registration
from callboard.languages.registry import about, authoring, parse_definition
from callboard.projections.drawing.geometry import Geometry, geometry
from callboard.runtime.admission.definitions import SOURCE_CHARS_MAX
from callboard.runtime.admission.registration import registered_names
from callboard.runtime.admission.versions import find_registration
from callboard.runtime.client.connection import Connection
from callboard.service.files.templates import example_start, examples
from callboard.service.operations.operation import ApiError, OperationProvider
from callboard.service.operations.requests import Nothing, OneName

OF_DECLARED: Mapping[str, Mapping[str, Any]] = {
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "string[]": {"type": "array", "items": {"type": "string"}},
}
"""The schemas of declared types; all other types are text."""


class Listed(Struct, frozen=True, omit_defaults=True):
    """A name under which definitions are registered. ``version`` is the number of the version in force."""

    name: str
    language: str
    hash: str
    version: int
    title: str = ""


class Listing(Struct, frozen=True):
    """Answer of ``definitions``: all registered definitions, by name."""

    definitions: list[Listed]


class DescribeText(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``describe_text``: the text of a definition. ``file`` is the name of its file, if it has one; its end decides
    about the language if the text does not."""

    source: str
    language: str | None = None
    file: str = ""


class Example(Struct, frozen=True):
    """A definition that can be started at once: ``start`` is the message, with a script in place of a model."""

    language: str
    name: str
    about: str
    start: dict[str, Any]


class ExampleList(Struct, frozen=True):
    """Answer of ``examples``."""

    examples: list[Example]


class Wanted(Struct, frozen=True, omit_defaults=True):
    """Answer of ``describe`` and ``describe_text``: the title, description and inputs of a definition, and its drawing.

    ``name`` is the name that its text gives it. ``input`` and ``arguments`` are JSON Schemas of the declared inputs and
    parameters, empty if none are declared.
    """

    language: str
    hash: str
    graph: Geometry
    name: str = ""
    title: str = ""
    description: str = ""
    input: dict[str, Any] = {}
    arguments: dict[str, Any] = {}


class Catalogue(OperationProvider):
    """The registered definitions of one tenant."""

    def __init__(self, connection: Connection) -> None:
        self._log = connection.log

    async def definitions(self, tenant: str, _request: Nothing) -> Listing:
        """List the registered definitions by name, each with the version in force."""
        counts = await registered_names(self._log, tenant)
        kept = {name: await read_registration(self._log, tenant, name) for name in counts}
        found = [(name, one) for name, one in kept.items() if one is not None]
        return Listing([_list_entry(name, one, counts[name]) for name, one in found])

    async def describe(self, tenant: str, asked: OneName) -> Wanted:
        """Return the inputs of a registered definition, and its drawing."""
        kept = await find_registration(self._log, tenant, asked.name)
        if kept is None:
            raise ApiError(404, "definition.unknown", f"no definition {asked.name!r} is registered")
        return await to_thread.run_sync(_describe, kept.source or "", kept.language, "", kept.hash)

    async def describe_text(self, tenant: str, asked: DescribeText) -> Wanted:
        """Return the inputs of a definition that is not registered, and its drawing."""
        if len(asked.source) > SOURCE_CHARS_MAX:
            expected = f"at most {SOURCE_CHARS_MAX} characters"
            message = f"the definition has {len(asked.source)} characters"
            raise ApiError(400, "definition.too_large", message, where="source", expected=expected)
        return await to_thread.run_sync(_describe, asked.source, asked.language, asked.file, None)

    async def examples(self, tenant: str, _request: Nothing) -> ExampleList:
        """List examples that need no model, one or more per language, each with its start message."""
        return ExampleList(await to_thread.run_sync(_examples))


def _list_entry(name: str, kept: Registration, count: int) -> Listed:
    definition = parse_definition(kept.source or "", named=kept.language)
    title = "" if isinstance(definition, list) else about(definition).title
    return Listed(name, kept.language or "", kept.hash or "", count, title)


@cache
def _examples() -> list[Example]:
    return [Example(one.language, one.name, one.about, example_start(one)) for one in examples()]


def _describe(source: str, language: str | None, file: str, known_hash: str | None) -> Wanted:
    definition = parse_definition(source, file, language)
    if isinstance(definition, list):
        status, message = (400, "the definition is not valid")
        if known_hash is not None:
            status, message = (409, "the registered definition is no longer valid")
        raise ApiError(status, "definition.refused", message, definition)
    said = about(definition)
    graph = geometry(authoring(definition.language).outline(definition.document))
    return Wanted(
        language=definition.language,
        hash=known_hash or definition.hash,
        graph=graph,
        name=definition.name,
        title=said.title,
        description=said.description,
        input=schema_of(said.inputs),
        arguments=schema_of(said.parameters),
    )


def schema_of(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema of an object with the declared fields, or an empty schema without fields."""
    if not declared:
        return {}
    needed = [name for name, one in declared.items() if isinstance(one, dict) and one.get("required") is True]
    fields = {name: _field(one) for name, one in declared.items()}
    return {"type": "object", "properties": fields, **({"required": needed} if needed else {})}


def _field(one: Any) -> dict[str, Any]:
    """Return the schema of a field. A parameter that is declared by a JSON Schema is returned unchanged."""
    if not isinstance(one, dict):
        return {}
    if one.get("type") in OF_DECLARED or isinstance(one.get("required"), bool) or "options" in one:
        options = one.get("enum") or one.get("options")
        told = {name: one[name] for name in ("description", "default") if one.get(name) is not None}
        kind = {"enum": options} if options else OF_DECLARED.get(str(one.get("type")), {"type": "string"})
        return {**kind, **told}
    return one
