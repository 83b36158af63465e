"""Text in a drawing: its maximum width, its wrapping into lines, and its escaping for XML.

The reader's font is unknown. Widths are those of wide sans-serif fonts (DejaVu Sans, Verdana), so that texts get too
much space rather than too little.
"""

import unicodedata
from functools import lru_cache

ELLIPSIS = "…"

_NARROW = frozenset("iIjl.,:;'|!()[]{}ftr/\\ `·-")
_JOINTS = frozenset("._-/:,;=")
_WIDE = frozenset("mwMW@%—…")

_WIDTHS_EM = {"narrow": 0.42, "wide": 1.0, "upper": 0.74, "other": 0.64, "full": 1.05}
"""Widths of characters, in the size of the font."""

MONO_EM = 0.62
"""The width of every narrow character of a font whose characters are all equally wide."""

_BOLD = 1.07
"""The factor by which bold text is wider."""


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """Return the maximum width of a line in pixels, at a font size in pixels."""
    return sum(map(_em, text)) * size * (_BOLD if bold else 1.0)


@lru_cache(maxsize=4096)
def _em(character: str) -> float:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return 0.0
    if unicodedata.east_asian_width(character) in ("W", "F") or ord(character) > 0xFFFF:
        return _WIDTHS_EM["full"]
    if character in _NARROW:
        return _WIDTHS_EM["narrow"]
    if character in _WIDE:
        return _WIDTHS_EM["wide"]
    return _WIDTHS_EM["upper" if character.isupper() else "other"]


def wrap_text(text: str, size: float, width_px: float, lines_max: int, *, bold: bool = False) -> list[str]:
    """Break a text into lines of at most ``width_px``. Text beyond ``lines_max`` lines becomes an ellipsis.

    Lines break between words. A word that is longer than a line breaks where the line is full. A text without any
    word has no lines.
    """
    lines: list[str] = []
    line = ""
    for word in text.split():
        while word:
            joined = f"{line} {word}" if line else word
            if width_of(joined, size, bold=bold) <= width_px:
                line, word = joined, ""
            elif line:
                lines.append(line)
                line = ""
            else:
                cut = _joint(word, _fitting(word, size, width_px, bold=bold))
                lines.append(word[:cut])
                word = word[cut:]
            if len(lines) > lines_max:
                return _elide(lines, size, width_px, lines_max, bold=bold)
    if line:
        lines.append(line)
    return lines if len(lines) <= lines_max else _elide(lines, size, width_px, lines_max, bold=bold)


def _fitting(word: str, size: float, width_px: float, *, bold: bool) -> int:
    """Return how many characters of a word fit into a line, at least one. Combining characters are not split off."""
    used, cut = 0.0, 0
    for cut, character in enumerate(word):
        used += width_of(character, size, bold=bold)
        if used > width_px and cut:
            return cut
    return cut + 1


def _joint(word: str, cut: int) -> int:
    """Return the best break of a word, at or shortly before ``cut``: after a mark, or before a capital letter."""
    if cut >= len(word):
        return cut
    for at in range(cut, cut // 2, -1):
        before, behind = word[at - 1], word[at]
        if before in _JOINTS or (before.islower() and behind.isupper()):
            return at
    return cut


def _elide(lines: list[str], size: float, width_px: float, lines_max: int, *, bold: bool) -> list[str]:
    last = lines[lines_max - 1]
    while last and width_of(last + ELLIPSIS, size, bold=bold) > width_px:
        last = last[:-1].rstrip()
    return [*lines[: lines_max - 1], last + ELLIPSIS]


def one_line(text: str, size: float, width_px: float) -> str:
    """Return a text as one line of at most ``width_px``, with an ellipsis if it is longer."""
    return next(iter(wrap_text(text, size, width_px, 1)), "")


_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}


def escape_xml(text: str) -> str:
    """Escape a text for XML content and attributes. Characters that XML forbids become U+FFFD."""
    return "".join(character if _is_allowed(ord(character)) else "\ufffd" for character in text).translate(_ESCAPES)


def _is_allowed(code: int) -> bool:
    """Return whether XML 1.0 (section 2.2) allows a character. Line breaks and tabs, which would be lost, are not."""
    return 0x20 <= code <= 0x7E or 0xA0 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF
