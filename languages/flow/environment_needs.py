"""What a flow's tool sources borrow from their worker: environment variables by name, so that no value is recorded.

Only sources that are written out can be looked through; one that an expression makes borrows all the same, and what a
tool repeats of it is recorded.
"""

import re
from collections.abc import Iterator

from callboard.lib.json_types import JSON

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def variables(document: JSON) -> Iterator[str]:
    """Yield the names of the variables that tool sources, anywhere in a document, mention."""
    match document:
        case {"type": "python", "config": dict(config)}:
            yield from _references(config)
        case {"type": "mcp", **rest}:
            env = rest.get("env")
            yield from (name for name in (env.values() if isinstance(env, dict) else ()) if isinstance(name, str))
            yield from _references(rest.get("headers"))
        case dict():
            for value in document.values():
                yield from variables(value)
        case list():
            for item in document:
                yield from variables(item)
        case _:
            pass


def _references(texts: JSON) -> Iterator[str]:
    for text in texts.values() if isinstance(texts, dict) else ():
        if isinstance(text, str):
            yield from _REFERENCE.findall(text)
