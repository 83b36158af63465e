"""The catalog of schemas: their names, and the functions that build them."""

from collections.abc import Callable, Mapping
from typing import Any

from callboard.languages.kit import kits
from callboard.languages.registry import authoring
from callboard.service.schemas.descriptions import DESCRIPTIONS
from callboard.service.schemas.messages import DIALECT, events_schema, start_schema, tells_schema
from callboard.service.schemas.published import describe_members, publish_schema


def _config() -> dict[str, Any]:
    from callboard.runtime.settings.config import Config

    return {"$schema": DIALECT, **Config.model_json_schema()}


def _script() -> dict[str, Any]:
    from callboard.actors.models.script import script_schema

    return {"$schema": DIALECT, **script_schema()}


def _asyncapi() -> dict[str, Any]:
    from callboard.service.schemas.asyncapi import document

    return document()


OURS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "events": events_schema,
    "start": start_schema,
    "tells": tells_schema,
    "script": _script,
    "config": _config,
    "asyncapi": _asyncapi,
}
"""The schemas that belong to no language."""


def names() -> list[str]:
    """Return the names of all schemas."""
    return [*OURS, *(name for name in kits() if authoring(name).schema is not None)]


def schema_named(name: str) -> dict[str, Any]:
    """Return a schema by its name.

    :raises KeyError: if no schema has this name
    """
    if name in OURS:
        return (
            describe_members(publish_schema(OURS[name]()), descriptions_of(name))
            if name != "asyncapi"
            else OURS[name]()
        )
    schema = authoring(name).schema if name in kits() else None
    if schema is None:
        raise KeyError(name)
    return describe_members(
        publish_schema({"$schema": DIALECT, **schema(), "title": f"A {name}"}), descriptions_of(name)
    )


def descriptions_of(name: str) -> Mapping[str, str]:
    """Return the descriptions of a schema's members that their classes do not have."""
    return DESCRIPTIONS.get(name, {}) if name in OURS else authoring(name).descriptions
