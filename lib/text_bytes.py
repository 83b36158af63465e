"""Texts from files, standard input and arguments: UTF-8, in the same way at every door.

A byte order mark at the beginning is not part of a text, and every line ends with ``\\n``. Bytes that are not UTF-8 are
refused with the line.
"""

import codecs
from pathlib import Path

BOM = "\ufeff"

_OTHER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
"""The marks of other encodings, the longer ones first."""


class NotText(ValueError):
    """Bytes are not text in UTF-8; the message says why, and where."""


def decode_text(data: bytes) -> str:
    """Return the text of bytes.

    :raises NotText: if they are not text in UTF-8
    """
    if encoding := other_encoding(data):
        raise NotText(f"the text is {encoding}, not UTF-8; save it as UTF-8")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise NotText(
            f"the text is not UTF-8: byte 0x{data[error.start]:02x} in line {line}; save it as UTF-8"
        ) from None
    return plain_text(text)


def without_nul(text: str) -> str:
    """Return a text for people or models. The parsers of documents refuse NUL themselves.

    :raises NotText: if it contains NUL
    """
    if (place := text.find("\0")) >= 0:
        line = text.count("\n", 0, place) + 1
        raise NotText(f"NUL in line {line}: this is not text, or text in UTF-16; save it as UTF-8")
    return text


def other_encoding(data: bytes) -> str:
    """Return the encoding that the mark at the beginning of bytes names, empty if it is UTF-8 or has no mark."""
    return next((name for mark, name in _OTHER_MARKS if data.startswith(mark)), "")


def plain_text(text: str) -> str:
    """Return a text without its byte order mark, each of whose lines ends with ``\\n``."""
    text = text.removeprefix(BOM)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_text(path: Path) -> str:
    """Read a file.

    :raises OSError: if it cannot be read
    :raises NotText: if it is not text in UTF-8
    """
    return decode_text(path.read_bytes())


def argument_text(argument: str) -> str:
    """Return the text of an argument or a variable, as the operating system has passed it to Python.

    :raises NotText: if its bytes are not text in UTF-8
    """
    return plain_text(argument) if argument.isascii() else decode_text(argument.encode("utf-8", "surrogateescape"))
