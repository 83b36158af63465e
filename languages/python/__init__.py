"""The `python` language: workflows as coroutine functions, on an event loop whose input and output is the stage."""

from typing import Any

from callboard.languages.kit import Kit, named


def _recognises(fields: dict[str, Any] | None, source: str) -> bool:
    found = named(fields, source, ("python", "code"))
    return "python" in found and not found & {"nodes", "steps", "entry", "entrypoint"}


KIT = Kit(
    "python",
    f"{__name__}.language",
    _recognises,
    'JSON with python ("module:name") and code, the digest of its sources',
    authoring_module=f"{__name__}.authoring",
    code_module=f"{__name__}.hosted",
)
