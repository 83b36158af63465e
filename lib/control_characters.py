"""Control characters made visible: those that a terminal executes, and those that reverse the text around them.

They are C0 and C1 (ECMA-48) with DEL, and the characters that override, embed and isolate directions (Unicode, UAX #9).
"""

import re

_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"

_IN_TEXTS = re.compile(rf"[{_CONTROLS}]|\r(?!\n)")
_IN_LINES = re.compile(rf"[{_CONTROLS}\t\r\n]")


def visible(text: str) -> str:
    """Return a text with its control characters escaped, such as ``\\x1b``; line breaks and tabs stay.

    Characters that JSON allows within a string are escaped as in JSON, ``\\u009b``. So an escaped JSON text still
    decodes to the same value.
    """
    return _IN_TEXTS.sub(_escape, text)


def visible_line(text: str) -> str:
    """Return a text as part of one line: line breaks and tabs are escaped too."""
    return _IN_LINES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"
