"""The lexer: splits an expression's text into tokens, and reads the values of literals."""

import re
from typing import NamedTuple

from callboard.languages.cel.errors import CelSyntaxError
from callboard.languages.cel.values import INT_MAX, INT_MIN, UINT_MAX, UInt

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


_ESCAPE = re.compile(
    r"""\\(?: (?P<plain>[abfnrtv\\?"'`]) | [xX](?P<byte>[0-9a-fA-F]{2}) | (?P<octal>[0-3][0-7]{2})
          | u(?P<short>[0-9a-fA-F]{4}) | U(?P<long>[0-9a-fA-F]{8}) | (?P<bad>.) )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class BadLiteral(Exception):
    """A literal has no value; the message is the reason."""


def read_int(text: str, *, negative: bool) -> int:
    """Read an int literal; ``negative`` if it has a minus sign.

    :raises BadLiteral: if it does not fit 64 bits
    """
    number = _digits(text)
    number = -number if negative else number
    if not INT_MIN <= number <= INT_MAX:
        raise BadLiteral(f"{number} does not fit an int, which has 64 bits; write it as a double: {number}.0")
    return number


def read_uint(text: str) -> UInt:
    """Read a uint literal.

    :raises BadLiteral: if it does not fit 64 bits
    """
    number = _digits(text[:-1])
    if number > UINT_MAX:
        raise BadLiteral(f"{number} does not fit a uint, which has 64 bits")
    return UInt(number)


def _digits(text: str) -> int:
    if len(text) > 30:
        raise BadLiteral("a whole number has 64 bits at most")
    return int(text, 16) if text[:2] == "0x" else int(text)


def read_double(text: str, *, negative: bool) -> float:
    """Read a double literal; ``negative`` if it has a minus sign.

    :raises BadLiteral: if it is beyond the finite doubles
    """
    number = float(text)
    if number == float("inf"):
        raise BadLiteral(f"{text} is beyond the doubles")
    return -number if negative else number


def read_text_or_bytes(literal: str, *, raw: bool) -> str | bytes:
    """Read a string or bytes literal, prefix and quotes included.

    :raises BadLiteral: if an escape in it has no meaning
    """
    start = min(at for at in (literal.find('"'), literal.find("'")) if at >= 0)
    prefix, quoted = literal[:start].lower(), literal[start:]
    quotes = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    body = quoted[quotes:-quotes]
    if "b" in prefix:
        return body.encode() if raw else _bytes(body)
    return body if raw else _ESCAPE.sub(_character, body)


def _character(match: re.Match[str]) -> str:
    if plain := match["plain"]:
        return _PLAIN_ESCAPES.get(plain, plain)
    if octal := match["octal"]:
        return chr(int(octal, 8))
    digits = match["byte"] or match["short"] or match["long"]
    if not digits:
        raise BadLiteral(f"'\\{match['bad']}' is no escape; a backslash is written '\\\\', or the string as r'…'")
    point = int(digits, 16)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise BadLiteral(f"{match[0]} is no character")
    return chr(point)


def _bytes(body: str) -> bytes:
    out = bytearray()
    at = 0
    for match in _ESCAPE.finditer(body):
        out += body[at : match.start()].encode()
        at = match.end()
        if match["short"] or match["long"]:
            raise BadLiteral(f"{match[0]} names a character; in bytes write its octets, such as \\xc3\\xa9")
        octet = int(match["byte"], 16) if match["byte"] else int(match["octal"], 8) if match["octal"] else None
        out += bytes([octet]) if octet is not None else _character(match).encode()
    return bytes(out + body[at:].encode())
