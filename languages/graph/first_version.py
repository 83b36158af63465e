"""Definitions of V1 of the engine: they are recognised, and refused with what to change. Pure."""

from typing import Any

from callboard.bus.events import Problem
from callboard.languages.problems import Location, Tree

CODE = "V1_DEFINITION"

_SUFFIX = "_NODE"
"""How the types of nodes end in V1."""


def problem_of_first_version(tree: Tree) -> Problem | None:
    """Return the one problem of a V1 definition; None if it is none. ``tree`` holds an object."""
    document: dict[str, Any] = tree.value
    listed = document.get("nodes")
    nodes = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    typed = next((one for one in enumerate(nodes) if str(one[1].get("type", "")).endswith(_SUFFIX)), None)
    connections = document.get("connections")
    mapped = isinstance(connections, dict) and bool(connections)
    if typed is None and not mapped:
        return None
    changes: list[str] = []
    where: Location = ("connections",)
    if "metadata" not in document:
        changes.append("put `id` and `name` into `metadata`")
    if typed is not None:
        index, node = typed
        where = ("nodes", index, "type")
        changes.append(
            f"write the type {node['type'].removesuffix(_SUFFIX)} for {node['type']}, likewise for all nodes"
        )
    if any("parameters" in node and "configurations" not in node for node in nodes):
        changes.append("rename `parameters` of nodes to `configurations`")
    if mapped:
        changes.append("make `connections` a list of {from_node, to_node, output_key}")
    message = f"this is a V1 definition, and only V2 is read: {'; '.join(changes)}"
    return tree.problem(CODE, message, where, expected="a V2 definition")
