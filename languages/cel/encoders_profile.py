"""The ``encoders`` extension, as cel-go has it: base64 of the standard alphabet."""

import binascii
import re
from base64 import b64decode, b64encode

from callboard.languages.cel.arithmetic import check_size
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.overloads import Declarations, count_texts

_ALPHABET = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)


def _decode(text: str) -> bytes:
    """Decode base64. Line breaks are skipped, and the padding may be omitted."""
    packed = text.replace("\r", "").replace("\n", "")
    try:
        if not _ALPHABET.fullmatch(packed):
            raise binascii.Error("a character outside of the alphabet")
        return b64decode(packed if "=" in packed else packed + "=" * (-len(packed) % 4), validate=True)
    except binascii.Error:
        raise EvaluationError("the text is no base64") from None


def _encode(octets: bytes) -> str:
    check_size(len(octets) * 4 // 3)
    return b64encode(octets).decode()


ENCODERS: Declarations = {
    "base64.decode(string)": count_texts(_decode),
    "base64.encode(bytes)": count_texts(_encode),
}
"""All functions of the profile, by signature."""
