"""The graph language: typed nodes wired as a DAG, as the design document of the Workflow Engine V2 specifies."""

from typing import Any

from callboard.languages.kit import Kit, find_fields


def _recognises(fields: dict[str, Any] | None, source: str) -> bool:
    found = find_fields(fields, source, ("nodes", "entry", "metadata", "connections"))
    return "nodes" in found and bool(found & {"metadata", "connections"}) and "entry" not in found


KIT = Kit(
    "graph",
    f"{__name__}.language",
    _recognises,
    "JSON with metadata, nodes, connections",
    fields=("metadata", "nodes", "connections", "triggers"),
    authoring_module=f"{__name__}.authoring",
    templates=__name__,
    typed_nodes=True,
    variables=True,
)
