"""The `workflow` language: YAML or JSON documents of the SWEny Workflow specification v1."""

from typing import Any

from callboard.languages.kit import Kit, find_fields


def _recognises(fields: dict[str, Any] | None, source: str) -> bool:
    return {"nodes", "entry"} <= find_fields(fields, source, ("nodes", "entry"))


KIT = Kit(
    "workflow",
    f"{__name__}.language",
    _recognises,
    "YAML or JSON with entry, nodes, edges",
    fields=("entry", "nodes", "edges"),
    authoring_module=f"{__name__}.authoring",
    templates=__name__,
)
