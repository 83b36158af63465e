"""What a playbook's connections borrow from their worker: environment variables by name, so no value is recorded."""

import re
from collections.abc import Iterator

from callboard.lib.json_types import JSON

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def borrowed_variables(connections: dict[str, JSON]) -> list[str]:
    """Return the names of the variables that tool sources mention, each once."""
    return sorted({name for source in connections.values() for name in _variables(source)})


def _variables(source: JSON) -> Iterator[str]:
    match source:
        case {"type": "python", "config": dict(config)}:
            yield from _references(config)
        case {"type": "mcp", **rest}:
            env, headers = rest.get("env"), rest.get("headers")
            yield from (name for name in (env.values() if isinstance(env, dict) else ()) if isinstance(name, str))
            yield from _references(headers if isinstance(headers, dict) else {})
        case _:
            pass


def _references(texts: dict[str, JSON]) -> Iterator[str]:
    for text in texts.values():
        if isinstance(text, str):
            yield from _REFERENCE.findall(text)
