"""The `python` language: workflows as coroutine functions, on an event loop whose input and output is the stage."""

from typing import Any

from callboard.languages.kit import Kit


def _recognises(fields: dict[str, Any] | None, _source: str) -> bool:
    # Such a definition is generated, so one that cannot be read is not a case.
    return fields is not None and "python" in fields and not {"nodes", "steps", "entry", "entrypoint"} & set(fields)


KIT = Kit(
    "python",
    f"{__name__}.language",
    _recognises,
    'JSON with python ("module:name") and code, the digest of its sources',
    authoring_module=f"{__name__}.authoring",
    templates=__name__,
    code_module=f"{__name__}.hosted",
)
