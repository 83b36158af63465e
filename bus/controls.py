"""Controls: characters that a terminal takes for orders, or that turn around what stands beside them, made visible.

They are those of C0 and C1 (ECMA-48), with DEL, and what overrides, embeds and isolates directions (Unicode, UAX #9).
"""

import re

_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"

_IN_TEXTS = re.compile(rf"[{_CONTROLS}]|\r(?!\n)")
_IN_LINES = re.compile(rf"[{_CONTROLS}\t\r\n]")


def visible(text: str) -> str:
    """Return a text with its controls spelled out, such as ``\\x1b``; ends of lines and tabs stay.

    What JSON allows within a text is spelled as JSON spells it, ``\\u009b``: of a JSON text the same value is read.
    """
    return _IN_TEXTS.sub(_spelled, text)


def visible_line(text: str) -> str:
    """Return a text as part of one line: ends of lines and tabs are spelled out too."""
    return _IN_LINES.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"
