"""The playbook language: PLAYBOOK.md 0.1.0, markdown with numbered steps, directives, branches and questions."""

import re
from typing import Any

from callboard.languages.kit import Kit, find_fields

_HEADING = re.compile(r"^##\s+(STEP\s+\d+:\s|(?i:SYSTEM|SYSTEM\s+PROMPT|INPUTS|ARTIFACTS)\s*$)", re.MULTILINE)

_NEARLY = re.compile(r"^#{1,3}[ \t]*STEP[ \t]*\d", re.MULTILINE | re.IGNORECASE)
"""A line that resembles the heading of a step."""

_OTHERS = ({"nodes", "entry"}, {"nodes", "metadata"}, {"nodes", "connections"}, {"entrypoint", "steps"})
"""Fields of documents in other languages. Such a document may contain headings too, since they are comments in YAML."""


def _recognises(fields: dict[str, Any] | None, source: str) -> bool:
    found = find_fields(fields, source, sorted(set().union(*_OTHERS)))
    return not any(other <= found for other in _OTHERS) and _HEADING.search(source.replace("\r", "\n")) is not None


def _resembles(source: str) -> bool:
    return _NEARLY.search(source.replace("\r", "\n")) is not None


KIT = Kit(
    "playbook",
    f"{__name__}.language",
    _recognises,
    "markdown with # Title and ## STEP 1: Title",
    suffixes=(".md", ".markdown"),
    resembles=_resembles,
    authoring_module=f"{__name__}.authoring",
    templates=__name__,
    variables=True,
)
