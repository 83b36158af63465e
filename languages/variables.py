"""References to environment variables in texts: Callboard's own form, ``${NAME}``, and the forms of other tools.

Only ``${NAME}`` is ever filled in, and only in some texts. The near misses of each language warn of the others.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""``${NAME}``, the form that workers fill in."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_ANY = re.compile(
    r"\$\{\{\s*(?P<action>[^{}]{0,200}?)\s*\}\}"
    r"|\$\{(?P<braced>[A-Za-z_][\w.:-]{0,200}?)(?::?[-?+=][^{}]{0,200})?\}"
)
_DOLLAR = re.compile(r"(?:(?:Bearer|Basic|Token|token)\s+)?\$(?P<name>[A-Z_][A-Z0-9_]*)")
_LAST_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Reference(Struct, frozen=True):
    """A reference in a text: its text, its offset, and the name of its variable (empty if unknown)."""

    text: str
    at: int
    name: str

    @property
    def ours(self) -> bool:
        """Whether it has the form that workers fill in."""
        return REFERENCE.fullmatch(self.text) is not None


def find_references(text: str) -> Iterator[Reference]:
    """Yield the references in a text: ``${NAME}``, ``${NAME:-x}``, ``${env:NAME}``, ``${{ secrets.NAME }}``.

    ``$NAME`` counts only if it is the whole text, or follows a word such as ``Bearer``.
    """
    if "$" not in text:
        return
    if match := _DOLLAR.fullmatch(text.strip()):
        yield Reference(f"${match['name']}", text.index("$"), match["name"])
        return
    for match in _ANY.finditer(text):
        named = _LAST_NAME.search(match["action"] or match["braced"] or "")
        yield Reference(match[0], match.start(), named[0] if named else "")


def blank_out_code(text: str) -> str:
    """Return a text for people or models with its code, between backticks, replaced by blanks.

    References in code are not meant to be filled in.
    """
    return re.sub(r"```.*?(?:```|\Z)|`[^`\n]*`", lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.DOTALL)
