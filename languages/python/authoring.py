"""The Python language for editors and for commands that read definitions."""

from typing import Any

from callboard.languages.authoring import About, Authoring
from callboard.languages.python.hosted import Named, find_hosted


def _about(document: Named) -> About:
    """Return title, description and inputs of a workflow, if this process hosts its code."""
    found = find_hosted(document.entry, document.digest)
    if found is None:
        return About()
    schema = found.workflow.input_schema
    required = set(schema.get("required", ()))
    inputs: dict[str, Any] = {name: {**one, "required": name in required} for name, one in _properties(schema).items()}
    description = found.workflow.description
    return About(description.partition("\n")[0].rstrip("."), description, inputs)


def _properties(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return schema.get("properties", {})


AUTHORING = Authoring(about=_about)
