"""The lexer: splits an expression's text into tokens."""

import re
from typing import NamedTuple

from callboard.languages.cel.errors import CelSyntaxError

SOURCE_MAX = 100_000
"""How many characters an expression may have."""

KEYWORDS = frozenset(("true", "false", "null", "in"))
"""Words that are never a name."""

_RESERVED = "as break const continue else for function if import let loop package namespace return var void while"
RESERVED = frozenset(_RESERVED.split())
"""Words that can only be the name of a member."""

_TOKEN = re.compile(
    r"""
      (?P<blank>   [\t\n\f\r\ ]+ | //[^\n]* )
    | (?P<double>  (?: [0-9]*\.[0-9]+ (?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ ) )
    | (?P<uint>    (?: 0x[0-9a-fA-F]+ | [0-9]+ ) [uU] )
    | (?P<int>     0x[0-9a-fA-F]+ | [0-9]+ )
    | (?P<raw>     [bB]?[rR] (?: \"{3}.*?\"{3} | '{3}.*?'{3} | "[^"\r\n]*" | '[^'\r\n]*' ) )
    | (?P<string>  [bB]? (?: \"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3}
                           | "(?:[^"\\\r\n]|\\[^\r\n])*" | '(?:[^'\\\r\n]|\\[^\r\n])*' ) )
    | (?P<name>    [_a-zA-Z][_a-zA-Z0-9]* )
    | (?P<quoted>  `[a-zA-Z0-9_\-./\ ]+` )
    | (?P<mark>    && | \|\| | [<>=!]= | [-+*/%!<>?:.,()\[\]{}] )
    """,
    re.VERBOSE | re.DOTALL,
)

_SURROGATE = re.compile("[\ud800-\udfff]")

_HINTS = {
    "=": "a single '=' is no operator; compare with '=='",
    "&": "a single '&' is no operator; write '&&'",
    "|": "a single '|' is no operator; write '||'",
    '"': "a string is not closed",
    "'": "a string is not closed",
}


class Token(NamedTuple):
    """A token of an expression. ``kind`` is the name of its group in the pattern above, or ``end``."""

    kind: str
    text: str
    at: int


def syntax_error(source: str, message: str, at: int) -> CelSyntaxError:
    """Return the error at an offset of a text."""
    before = source[:at]
    return CelSyntaxError(message, before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1)


def tokens(source: str) -> list[Token]:
    """Split a text into tokens; the last one is an ``end``.

    :raises CelSyntaxError: if a part of the text is not a token, or the text is too long
    """
    if len(source) > SOURCE_MAX:
        raise syntax_error(
            source, f"an expression has at most {SOURCE_MAX} characters, this one {len(source)}", SOURCE_MAX
        )
    if surrogate := _SURROGATE.search(source):
        raise syntax_error(source, "half of a surrogate pair is no character", surrogate.start())
    found: list[Token] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            character = source[at]
            raise syntax_error(source, _HINTS.get(character, f"{character!r} does not belong here"), at)
        if match.lastgroup and match.lastgroup != "blank":
            found.append(Token(match.lastgroup, match.group(), at))
        at = match.end()
    found.append(Token("end", "", len(source)))
    return found
