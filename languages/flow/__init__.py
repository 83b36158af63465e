"""The flow language: Metolia Workflow Language v0.1, implemented from its specification."""

from typing import Any

from callboard.languages.kit import Kit, find_fields


def _recognises(fields: dict[str, Any] | None, source: str) -> bool:
    return {"entrypoint", "steps"} <= find_fields(fields, source, ("entrypoint", "steps"))


KIT = Kit(
    "flow",
    f"{__name__}.language",
    _recognises,
    "JSON with $schema, entrypoint and steps",
    fields=("$schema", "entrypoint", "steps", "flows"),
    authoring_module=f"{__name__}.authoring",
    templates=__name__,
    providers_module=f"{__name__}.provider_document",
    variables=True,
)
