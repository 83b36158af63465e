"""The legend of a drawing: the meaning of the marks and colours that occur in it."""

from collections.abc import Iterator

from callboard.projections.drawing.diagram import Diagram, NodeLook, look_of
from callboard.projections.drawing.shapes import is_caught
from callboard.projections.drawing.text import width_of

_ROW_PX = 22.0
_SIGN_PX = 26.0
_BETWEEN_PX = 20.0

_WORDS: dict[NodeLook, str] = {
    "success": "succeeded",
    "failed": "failed",
    "current": "under way",
    "skipped": "skipped",
    "cancelled": "cancelled",
    "unreached": "not reached",
}


def legend(diagram: Diagram, left: float, top: float, width: float) -> tuple[list[str], float]:
    """Return the lines of the legend, placed at ``left`` and ``top`` within ``width``, and its height."""
    if not diagram.outline.nodes:
        return [], 0.0
    lines: list[str] = []
    x, y = left, top
    for words, sign in _entries(diagram):
        wide = _SIGN_PX + width_of(words, 11)
        if x > left and x + wide > left + width:
            x, y = left, y + _ROW_PX
        lines.append(f'<g transform="translate({x:g} {y:g})">{sign}<text class="key" x="22" y="4">{words}</text></g>')
        x = round(x + wide + _BETWEEN_PX, 1)
    return lines, y - top + 8


def _entries(diagram: Diagram) -> Iterator[tuple[str, str]]:
    begun = "taken" if diagram.colours else "plain"
    yield "begins", f'<g class="{begun}"><circle class="dot" cx="8" r="6"/></g>'
    yield "ends", f'<g class="{begun}"><circle class="ring" cx="8" r="5"/><circle class="dot" cx="8" r="2.5"/></g>'
    edges = range(len(diagram.outline.edges))
    if any(is_caught(diagram, index) for index in edges):
        yield "for failures", f'<g class="edge {begun} caught"><path class="way" d="M0 0 L16 0"/></g>'
    if not diagram.colours:
        return
    looks = {look_of(diagram, node.id) for node in diagram.outline.nodes}
    for look, words in _WORDS.items():
        if look in looks:
            yield words, f'<g class="{look}"><rect class="card" x="0" y="-6" width="16" height="12" rx="3"/></g>'
    for kind, words in (("taken", "way taken"), ("other", "way not taken")):
        if any(bool(diagram.taken.get(index)) == (kind == "taken") for index in edges):
            yield words, f'<g class="edge {kind}"><path class="way" d="M0 0 L16 0"/></g>'
