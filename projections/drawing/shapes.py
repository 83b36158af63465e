"""The shapes of a drawing as SVG: cards, boxes, edges, chips and marks, styled by what happened to them."""

from collections.abc import Iterator

from callboard.projections.drawing.cards import (
    ASIDE_LINE_PX,
    ASIDE_PX,
    LABEL_LINE_PX,
    LABEL_PX,
    NAME_LINE_PX,
    NAME_PX,
    Label,
)
from callboard.projections.drawing.diagram import Diagram, NodeLook, look_of
from callboard.projections.drawing.edges import CAUGHT
from callboard.projections.drawing.scene import Drawn, EndMark, Placed, Scene, head_px
from callboard.projections.drawing.strokes import number, rectangle, way
from callboard.projections.drawing.text import escape_xml
from callboard.projections.trace.node_tree import above

_BADGES: dict[NodeLook, str] = {
    "success": "M-4 0.3 L-1.2 3.2 L4.2 -3",
    "failed": "M-3.2 -3.2 L3.2 3.2 M3.2 -3.2 L-3.2 3.2",
    "skipped": "M-3.8 0 L3.8 0",
    "cancelled": "M-3.4 3.4 L3.4 -3.4",
    "current": "M-1.8 -3.4 L3.4 0 L-1.8 3.4 Z",
}


class Shapes:
    """Draws the scene of a diagram."""

    def __init__(self, diagram: Diagram, labels: list[Label]) -> None:
        self._diagram = diagram
        self._labels = labels
        self._names = {node.id: node.name.strip() for node in diagram.outline.nodes}
        self._inside: dict[str, list[str]] = {}
        for key, colour in diagram.colours.items():
            for box in (key, *above(key)):
                self._inside.setdefault(box, []).append(colour)

    def all(self, scene: Scene) -> Iterator[str]:
        """Yield everything: boxes lie below edges, edges below their labels, cards on top."""
        for placed in scene.placed:
            if placed.inner:
                yield from self._box(placed)
        # Draw the edges that were taken above the others.
        for drawn in sorted(scene.drawn, key=lambda drawn: self._kind(drawn) == "taken"):
            yield from self._edge(drawn)
        for mark in scene.marks:
            yield self._mark(mark)
        for drawn in scene.drawn:
            yield from self._chip(drawn)
        for placed in scene.placed:
            if not placed.inner:
                yield from self._card(placed)

    def _card(self, placed: Placed) -> Iterator[str]:
        look = look_of(self._diagram, placed.key)
        yield f'<g class="node {look}"><title>{self._title(placed)}</title>'
        yield rectangle("card", placed.centre, placed.size, 10)
        yield from _text(placed, placed.centre.y - _text_px(placed) / 2)
        yield from _badge(look, placed)
        yield "</g>"

    def _box(self, placed: Placed) -> Iterator[str]:
        # A box that is not a node has no outcome, so it is drawn plainly.
        own = placed.is_node or placed.key not in self._inside
        look = look_of(self._diagram, placed.key) if own else "plain"
        yield f'<g class="node inner {look}"><title>{self._title(placed)}</title>'
        yield rectangle("card", placed.centre, placed.size, 14)
        top = placed.centre.y - placed.size.height / 2
        yield from _text(placed, top + (head_px(placed.card) - _text_px(placed)) / 2 + 4)
        yield from _badge(look, placed)
        yield "</g>"

    def _title(self, placed: Placed) -> str:
        words = (self._names.get(placed.key), placed.key, self._diagram.colours.get(placed.key))
        return escape_xml(" · ".join(word for word in words if word))

    def _look(self, taken: bool) -> str:
        """Return the style of an edge: taken or other, or plain if nothing has happened yet."""
        return "plain" if not self._diagram.colours else "taken" if taken else "other"

    def _kind(self, drawn: Drawn) -> str:
        if drawn.edge is not None:
            return self._look(bool(self._diagram.taken.get(drawn.edge, 0)))
        return self._look(drawn.node in self._inside if drawn.begins else self._over(drawn.node))

    def _over(self, key: str) -> bool:
        """Return whether a node has ended; for a box that is not a node, whether all entered nodes in it have."""
        own = self._diagram.colours.get(key)
        return "current" not in ([own] if own else self._inside.get(key, ["current"]))

    def _edge(self, drawn: Drawn) -> Iterator[str]:
        head, line = way(drawn.route)
        caught = " caught" if drawn.edge is not None and is_caught(self._diagram, drawn.edge) else ""
        yield f'<g class="edge {self._kind(drawn)}{caught}">'
        if drawn.edge is not None:
            yield f"<title>{self._edge_title(drawn.edge)}</title>"
        yield f'<path class="way" d="{line}"/><path class="head" d="{head}"/></g>'

    def _chip(self, drawn: Drawn) -> Iterator[str]:
        centre = drawn.route.label
        if drawn.edge is None or centre is None:
            return
        told = self._labels[drawn.edge]
        yield f'<g class="edge {self._kind(drawn)}"><title>{self._edge_title(drawn.edge)}</title>'
        yield rectangle("chip", centre, told.size, 7)
        y = centre.y - len(told.lines) * LABEL_LINE_PX / 2 + (LABEL_LINE_PX + LABEL_PX) / 2 - 2
        for line in told.lines:
            yield f'<text class="label" x="{number(centre.x)}" y="{number(y)}">{escape_xml(line)}</text>'
            y += LABEL_LINE_PX
        yield "</g>"

    def _edge_title(self, index: int) -> str:
        edge, count = self._diagram.outline.edges[index], self._diagram.taken.get(index, 0)
        words = [f"{edge.source} → {edge.target}", (edge.when or "").strip(), f"taken {count}×" if count else ""]
        return escape_xml(" · ".join(word for word in words if word))

    def _mark(self, mark: EndMark) -> str:
        x, y = number(mark.centre.x), number(mark.centre.y)
        if mark.after is None:
            begun = mark.of is None or mark.of in self._inside
            return f'<g class="{self._look(begun)}"><circle class="dot" cx="{x}" cy="{y}" r="7"/></g>'
        ring = f'<circle class="ring" cx="{x}" cy="{y}" r="6"/><circle class="dot" cx="{x}" cy="{y}" r="3"/>'
        return f'<g class="{self._look(self._over(mark.after))}">{ring}</g>'


def is_caught(diagram: Diagram, edge: int) -> bool:
    """Return whether only failures take an edge."""
    return (diagram.outline.edges[edge].when or "").startswith(CAUGHT)


def _text_px(placed: Placed) -> float:
    return len(placed.card.name) * NAME_LINE_PX + (ASIDE_LINE_PX if placed.card.aside else 0)


def _text(placed: Placed, top: float) -> Iterator[str]:
    x = number(placed.centre.x)
    for line in placed.card.name:
        y = number(top + (NAME_LINE_PX + NAME_PX) / 2 - 2)
        yield f'<text class="name" x="{x}" y="{y}">{escape_xml(line)}</text>'
        top += NAME_LINE_PX
    if placed.card.aside:
        y = number(top + (ASIDE_LINE_PX + ASIDE_PX) / 2 - 1)
        yield f'<text class="aside" x="{x}" y="{y}">{escape_xml(placed.card.aside)}</text>'


def _badge(look: NodeLook, placed: Placed) -> Iterator[str]:
    """Draw a mark on the corner that shows the outcome without colour."""
    if look not in _BADGES:
        return
    mark = f'<circle class="badge" r="9" stroke-width="2"/><path class="mark" d="{_BADGES[look]}"/>'
    x, y = placed.centre.x + placed.size.width / 2 - 4, placed.centre.y - placed.size.height / 2 + 4
    yield f'<g transform="translate({number(x)} {number(y)})">{mark}</g>'
