"""References to variables of an environment, in texts: ours, ``${NAME}``, and how other tools write them.

Where a text is filled in, only ``${NAME}`` is; in most texts not even that. The near misses of each language say where.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""``${NAME}``, as the worker fills it in where it may."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_ANY = re.compile(
    r"\$\{\{\s*(?P<action>[^{}]{0,200}?)\s*\}\}"
    r"|\$\{(?P<braced>[A-Za-z_][\w.:-]{0,200}?)(?::?[-?+=][^{}]{0,200})?\}"
)
_DOLLAR = re.compile(r"(?:(?:Bearer|Basic|Token|token)\s+)?\$(?P<name>[A-Z_][A-Z0-9_]*)")
_LAST_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Reference(Struct, frozen=True):
    """A reference in a text: how it is written, where it begins, and the variable that it means, if one can be told."""

    text: str
    at: int
    name: str

    @property
    def ours(self) -> bool:
        """Whether it is written as the worker reads it."""
        return REFERENCE.fullmatch(self.text) is not None


def references(text: str) -> Iterator[Reference]:
    """Yield what looks like a reference: ``${NAME}``, ``${NAME:-x}``, ``${env:NAME}``, ``${{ secrets.NAME }}``; of a
    text that is nothing else, maybe after a word such as ``Bearer``, also ``$NAME``."""
    if "$" not in text:
        return
    if match := _DOLLAR.fullmatch(text.strip()):
        yield Reference(f"${match['name']}", text.index("$"), match["name"])
        return
    for match in _ANY.finditer(text):
        named = _LAST_NAME.search(match["action"] or match["braced"] or "")
        yield Reference(match[0], match.start(), named[0] if named else "")


def outside_code(text: str) -> str:
    """Return a text for people or models with blanks for what is between backticks: code is not meant to be filled
    in."""
    return re.sub(r"```.*?(?:```|\Z)|`[^`\n]*`", lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.DOTALL)
