"""The texts of a drawing, broken into lines and measured: the cards of nodes and the labels of edges."""

from msgspec import Struct

from callboard.bus.events import OutlineNode
from callboard.projections.drawing.graph import NOTHING, Size
from callboard.projections.drawing.text import MONO_EM, one_line, width_of, wrap_text

NAME_PX = 14.0
NAME_LINE_PX = 18.0
NAME_WIDTH_MAX_PX = 200.0
NAME_LINES_MAX = 3

ASIDE_PX = 11.0
ASIDE_LINE_PX = 16.0

LABEL_PX = 12.0
LABEL_LINE_PX = 15.0
LABEL_WIDTH_MAX_PX = 180.0
LABEL_LINES_MAX = 3

CARD_WIDTH_MIN_PX = 116.0
_CARD_PADDING = Size(18, 13)
_LABEL_PADDING = Size(9, 4)

_NO_NAME = "–"


class Card(Struct, frozen=True):
    """A node's name in lines, the paler line below it, and the size of the card."""

    name: list[str]
    aside: str
    size: Size


class Label(Struct, frozen=True):
    """An edge's label in lines, and its size. A label without lines takes no space."""

    lines: list[str]
    size: Size


def card(node: OutlineNode) -> Card:
    """Return a node's card: its name, and below it its id and type if they differ from the name."""
    shown = node.name if node.name.strip() else node.id.rpartition("/")[2]
    name = wrap_text(shown, NAME_PX, NAME_WIDTH_MAX_PX, NAME_LINES_MAX, bold=True) or [_NO_NAME]
    aside = one_line(" · ".join(_aside(node, shown)), ASIDE_PX, NAME_WIDTH_MAX_PX)
    mono = max(width_of(aside, ASIDE_PX), len(aside) * ASIDE_PX * MONO_EM)
    text = max(*(width_of(line, NAME_PX, bold=True) for line in name), mono)
    height = len(name) * NAME_LINE_PX + (ASIDE_LINE_PX if aside else 0)
    width = max(CARD_WIDTH_MIN_PX, text + 2 * _CARD_PADDING.width)
    return Card(name, aside, Size(round(width), round(height + 2 * _CARD_PADDING.height)))


def _aside(node: OutlineNode, shown: str) -> list[str]:
    last = node.id.rpartition("/")[2]
    said = shown.casefold().replace(" ", "").replace("_", "").replace("-", "")
    same = last.casefold().replace(" ", "").replace("_", "").replace("-", "") == said
    told = [] if same else [last]
    told += [word for word in (node.type, node.subtype) if word and word != "node"]
    return [" ".join(word.split()) for word in told if word.strip()]


def label(text: str, count: int) -> Label:
    """Return an edge's label: its condition, and how often it was taken if more than once."""
    words = [text] if text.strip() else []
    if count > 1:
        words.append(f"{count}×")
    lines = wrap_text(" · ".join(words), LABEL_PX, LABEL_WIDTH_MAX_PX, LABEL_LINES_MAX)
    if not lines:
        return Label([], NOTHING)
    width = max(width_of(line, LABEL_PX) for line in lines) + 2 * _LABEL_PADDING.width
    return Label(lines, Size(round(width), len(lines) * LABEL_LINE_PX + 2 * _LABEL_PADDING.height))
