"""The values of literals: numbers, strings and bytes with their escapes."""

import re

from callboard.languages.cel.values import INT_MAX, INT_MIN, UINT_MAX, UInt

_ESCAPE = re.compile(
    r"""\\(?: (?P<plain>[abfnrtv\\?"'`]) | [xX](?P<byte>[0-9a-fA-F]{2}) | (?P<octal>[0-3][0-7]{2})
          | u(?P<short>[0-9a-fA-F]{4}) | U(?P<long>[0-9a-fA-F]{8}) | (?P<bad>.) )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


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
        return _PLAIN.get(plain, plain)
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
