"""Expressions in documents: an expression is a string that one pair of braces, ``{{ … }}``, encloses completely.

Source: page *Expressions*, section *The embedding*. Every other string is a literal, even if it begins and ends like an
expression: ``{{ a }} and {{ b }}``. To distinguish them, this module finds the closing braces that match the opening
ones, and skips string literals, comments and braces of CEL between them.
"""

import re
from collections.abc import Iterator

from callboard.languages.problems import Location
from callboard.lib.json_types import JSON

OPENING, CLOSING = "{{", "}}"

_TOKEN = re.compile(
    r"""
      //[^\n]*
    | (?P<raw>[bB]?[rR]) (?: '''.*?''' | \"\"\".*?\"\"\" | '[^'\n]*' | "[^"\n]*" )
    | [bB]? (?: '''(?:\\.|[^\\])*?''' | \"\"\"(?:\\.|[^\\])*?\"\"\" | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*" )
    | [A-Za-z0-9_]+
    | `[^`\n]*`
    | (?P<open>\{)
    | (?P<close>\})
    | (?P<unclosed>['"])
    | [^'"{}`/A-Za-z0-9_]+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def expression_body(text: str) -> str | None:
    """Return the text between the braces if the whole string is one expression, or None if it is a literal.

    If CEL cannot parse the body, for example because a string in it is not closed, it is still an expression.
    """
    if len(text) < 4 or not text.startswith(OPENING) or not text.endswith(CLOSING):
        return None
    last = len(text) - len(CLOSING)
    if text.find(CLOSING, len(OPENING)) == last or _closing(text) in (last, None):
        return text[len(OPENING) : last]
    return None


def expressions_in(value: JSON, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield the location and the body of each expression in a value."""
    match value:
        case str():
            if (body := expression_body(value)) is not None:
                yield location, body
        case dict():
            for name, member in value.items():
                yield from expressions_in(member, (*location, name))
        case list():
            for index, item in enumerate(value):
                yield from expressions_in(item, (*location, index))
        case _:
            pass


def _closing(text: str) -> int | None:
    """Return the offset of the braces that close the opening ones; None if the text ends before them."""
    depth = 0
    for token in _TOKEN.finditer(text, len(OPENING)):
        match token.lastgroup:
            case "unclosed":
                return None
            case "open":
                depth += 1
            case "close" if depth:
                depth -= 1
            case "close" if text.startswith(CLOSING, token.start()):
                return token.start()
            case _:
                pass
    return None
