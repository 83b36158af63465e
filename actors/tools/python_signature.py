"""Plain Python functions as tools: found by dotted path, described by type hints and docstring, called with JSON.

The function needs nothing from Callboard. Type hints become the input schema, defaults make parameters optional, and
``**rest`` allows further members. Descriptions come from ``Annotated[T, Field(description=…)]``, ``Annotated[T, "…"]``
or the docstring (``:param x: …`` or an ``Args:`` section). A parameter named ``context`` is not part of the schema.
"""

import importlib
import inspect
import re
import typing
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from callboard.bus.effects import ToolSpec

CONTEXT_PARAMETER = "context"
"""The name of the parameter that receives the tool's context."""

_PARAM_FIELD = re.compile(r"^\s*:param\s+(?:[^:\n]*\s)?(\w+)\s*:\s*(.+?)(?=^\s*:\w|^\s*$|\Z)", re.M | re.S)
_ARGS_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):\s*\n((?:[ \t]+.*(?:\n|\Z)|[ \t]*\n)+)", re.M)
_ARGS_ENTRY = re.compile(r"^(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")


class NotATool(Exception):
    """A dotted path does not lead to a function that can serve as a tool; the text says why and what to do."""


class _Schema(GenerateJsonSchema):
    """JSON Schema without the titles that only repeat names, and without warnings about defaults."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: Literal["validation", "serialization"] = "validation") -> JsonSchemaValue:
        document = super().generate(schema, mode)
        document.pop("title", None)
        return document


class ToolFunction(Struct, frozen=True):
    """A function ready to be called. ``fields`` maps its parameters to the fields of ``arguments``."""

    function: Callable[..., Any]
    spec: ToolSpec
    arguments: type[BaseModel]
    fields: dict[str, str]
    positional: tuple[str, ...]
    takes_context: bool

    def bind(self, input: bytes, context: object) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the function for a JSON input; parameters that it leaves out keep their defaults.

        :raises pydantic.ValidationError: if the input does not fit the signature
        """
        model = self.arguments.model_validate_json(input)
        named = {name: getattr(model, key) for name, key in self.fields.items() if key in model.model_fields_set}
        named |= model.model_extra or {}
        if self.takes_context:
            named[CONTEXT_PARAMETER] = context
        return [named.pop(name) for name in self.positional if name in named], named


def load_function(name: str, dotted: str) -> ToolFunction:
    """Find a function by ``package.module:function`` or ``package.module.function`` and describe it.

    Exceptions that the import itself raises pass through.

    :raises NotATool: if the function does not exist, or its signature cannot be described
    """
    function = _find(dotted)
    if not callable(function):
        raise NotATool(f"{dotted} is not a function but of type {type(function).__name__}")
    try:
        return _describe(name, dotted, function)
    except NotATool:
        raise
    except Exception as error:
        raise NotATool(f"the signature of {dotted} cannot be described: {type(error).__name__}: {error}") from error


def _find(dotted: str) -> Any:
    module_name, colon, attributes = dotted.partition(":")
    if colon:
        return _walk(importlib.import_module(module_name), attributes, dotted)
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:cut])
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            # Only the path itself may be cut shorter; a module with a missing import is a real error.
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise
        else:
            return _walk(module, ".".join(parts[cut:]), dotted)
    raise NotATool(f"no module of {dotted} can be found; write package.module:function, importable by the worker")


def _walk(module: ModuleType, attributes: str, dotted: str) -> Any:
    found: Any = module
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            owner = getattr(found, "__name__", type(found).__name__)
            raise NotATool(f"{dotted} leads nowhere: {owner} has no {attribute or 'empty name'}") from None
        if isinstance(found, ModuleType) and not found.__name__.startswith(f"{module.__name__}."):
            # A path is what permits are given for, so it must not lead into a module that another module imports.
            raise NotATool(f"{dotted} leads through {module.__name__} into the module {found.__name__}; name that one")
    return found


def _describe(name: str, dotted: str, function: Callable[..., Any]) -> ToolFunction:
    doc = inspect.getdoc(function) or ""
    hinted = function if hasattr(function, "__annotations__") else type(function).__call__
    hints = typing.get_type_hints(hinted, include_extras=True)
    notes = _parameter_notes(doc)
    fields: dict[str, str] = {}
    columns: dict[str, Any] = {}
    extra: Literal["allow", "forbid"] = "forbid"
    parameters = inspect.signature(function).parameters
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise NotATool(f"{dotted} takes *{parameter.name}; a tool's input has names only, use a list parameter")
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
        elif parameter.name != CONTEXT_PARAMETER:
            key = f"p{len(fields)}"  # a neutral name: parameters may be called like members of a pydantic model
            fields[parameter.name] = key
            hint = hints.get(parameter.name, Any)
            columns[key] = (hint, _field(parameter, hint, notes.get(parameter.name)))
    model = create_model(name or "tool", __config__=ConfigDict(extra=extra), **columns)
    spec = ToolSpec(
        name=name,
        description=doc.split("\n\n", 1)[0].replace("\n", " ").strip(),
        input_schema=model.model_json_schema(schema_generator=_Schema),
    )
    positional = tuple(p.name for p in parameters.values() if p.kind is p.POSITIONAL_ONLY)
    return ToolFunction(function, spec, model, fields, positional, CONTEXT_PARAMETER in parameters)


def _field(parameter: inspect.Parameter, hint: Any, note: str | None) -> Any:
    metadata: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    described = [item.description for item in metadata if isinstance(item, FieldInfo) and item.description]
    described += [item for item in metadata if isinstance(item, str)]
    description = described[0] if described else note
    default = ... if parameter.default is parameter.empty else parameter.default
    return Field(default, alias=parameter.name, description=description)


def _parameter_notes(doc: str) -> dict[str, str]:
    """Return the text of a docstring about each parameter, in reStructuredText or Google style."""
    notes = {match.group(1): " ".join(match.group(2).split()) for match in _PARAM_FIELD.finditer(doc)}
    if section := _ARGS_SECTION.search(doc):
        current = ""
        lines = inspect.cleandoc("\n" + section.group(1)).splitlines()
        for line in lines:
            if entry := _ARGS_ENTRY.match(line):
                current = entry.group(1)
                notes[current] = entry.group(2).strip()
            elif current and line.strip():
                notes[current] += f" {line.strip()}"
    return notes
