"""References to variables in texts: ``${VARIABLE}``."""

import re
from collections.abc import Callable, Mapping

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def references(texts: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that values refer to, each once, in order."""
    return sorted({name for text in texts.values() for name in _REFERENCE.findall(text)})


def fill_references(text: str, value_of: Callable[[str], str]) -> str:
    """Return a text with each reference replaced by the variable's value."""
    return _REFERENCE.sub(lambda match: value_of(match.group(1)), text)
