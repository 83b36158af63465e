"""How an expression is in a document: a string that one pair of braces, ``{{ … }}``, spans as a whole.

Source: page *Expressions*, section *The embedding*. Every other string is a literal, also one that only begins and
ends like an expression: ``{{ a }} and {{ b }}``. To tell them apart the closing pair has to be found that belongs to
the opening one, past the string literals, comments and braces of CEL between them.
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
    """Return what is between the braces if the whole string is one expression, or None if it is a literal.

    A body that CEL cannot read, such as one with an unclosed string, is still an expression: a wrong one.
    """
    if len(text) < 4 or not text.startswith(OPENING) or not text.endswith(CLOSING):
        return None
    last = len(text) - len(CLOSING)
    if text.find(CLOSING, len(OPENING)) == last or _closing(text) in (last, None):
        return text[len(OPENING) : last]
    return None


def expressions_in(value: JSON, location: Location = ()) -> Iterator[tuple[Location, str]]:
    """Yield where in a value, at any string leaf, an expression stands, and its body."""
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
    """Return where the pair stands that closes the opening one, or None if the body never comes to it."""
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
