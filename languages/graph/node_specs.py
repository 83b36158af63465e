"""The registry of node types: configurations, inputs and outputs of each subtype. Each type has a file, read once.

Defaults fill in missing configurations of a node. The three members of `TEMPLATE_DEFAULTS` are for tools that make
nodes of templates, and do not apply to a node that lacks them.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from callboard.languages.node_types import Field, NodeSpec, NodeType, ValueType
from callboard.languages.problems import Tree
from callboard.languages.yaml12 import read_yaml
from callboard.lib.json_types import JSON

NODE_TYPES = (
    "TRIGGER",
    "AI_AGENT",
    "ACTION",
    "EXTERNAL_ACTION",
    "FLOW",
    "HUMAN_IN_THE_LOOP",
    "MEMORY",
    "TOOL",
)

_EMPTY: dict[ValueType, JSON] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
}

_FOLDER = files("callboard.languages.graph") / "spec_files"

TEMPLATE_DEFAULTS: dict[str, Field] = {
    "timeout": Field("number", default=420, min=1, max=1000),
    "retry_attempts": Field("integer", default=3, min=0, max=10),
    "enabled": Field("boolean", default=True, effect="refused", advice="remove the node, or its connections"),
}
"""Configurations that every subtype has besides those of its table."""

ENGINE_FIELDS: dict[str, Field] = {
    **TEMPLATE_DEFAULTS,
    "timeout_seconds": Field("number"),
    "retry_backoff_seconds": Field("number", default=0),
    "retry_backoff_factor": Field("number", default=1),
    "retry_jitter_seconds": Field("number", default=0),
    "credit_cost": Field("number", default=0),
}
"""Configurations that the engine reads of every node; the table of the subtype takes precedence."""


@cache
def node_type(name: str) -> NodeType:
    """Return a type by name.

    :raises KeyError: if no type has that name
    """
    if name not in NODE_TYPES:
        raise KeyError(name)
    tree = read_yaml((_FOLDER / f"{name.lower()}.yaml").read_text(encoding="utf-8"))
    assert isinstance(tree, Tree), tree
    document: dict[str, Any] = tree.value
    subtypes = {subtype: _spec(name, subtype, table) for subtype, table in document["subtypes"].items()}
    return NodeType(name, subtypes, tuple(document.get("unspecified", ())), tuple(document.get("instead", ())))


def spec_of(type: str, subtype: str) -> NodeSpec | None:
    """Return the table of a subtype, or None if none exists."""
    return node_type(type).subtypes.get(subtype) if type in NODE_TYPES else None


def is_known(type: str, subtype: str) -> bool:
    """Say whether a type has a subtype, with a table or without."""
    return type in NODE_TYPES and (subtype in node_type(type).subtypes or subtype in node_type(type).unspecified)


def _spec(type: str, subtype: str, table: dict[str, Any]) -> NodeSpec:
    parts = {part: _fields(table[part]) for part in ("configurations", "input_params", "output_params")}
    return NodeSpec(type, subtype, table["title"], **parts)


def _fields(written: dict[str, dict[str, Any]]) -> dict[str, Field]:
    return {name: _field(**members) for name, members in written.items()}


def _field(type: ValueType, default: JSON = None, **members: Any) -> Field:
    lists = {
        name: tuple(members.pop(name, ())) for name in ("options", "instead", "reads", "refused", "actual", "idle")
    }
    return Field(type, default=_EMPTY[type] if default is None else default, **lists, **members)
