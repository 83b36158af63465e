"""A diagram as a self-contained SVG drawing, without scripts, fonts or external resources.

Colours follow the reader's preference for light or dark. Every node and edge has a title that shows on hover, and the
drawing has a description for screen readers.
"""

import zlib
from collections.abc import Iterator

from callboard.projections.drawing.cards import label
from callboard.projections.drawing.diagram import Diagram, Direction
from callboard.projections.drawing.graph import Size
from callboard.projections.drawing.legend import legend
from callboard.projections.drawing.scene import Stage
from callboard.projections.drawing.shapes import Shapes
from callboard.projections.drawing.strokes import number
from callboard.projections.drawing.style import css
from callboard.projections.drawing.text import escape_xml, one_line, width_of

MARGIN_PX = 28.0
WIDTH_MIN_PX = 320.0
TITLE_WIDTH_MAX_PX = 900.0
DESCRIPTION_CHARS_MAX = 4_000


def svg(diagram: Diagram, *, direction: Direction = "TB", title: str = "", subtitle: str = "") -> str:
    """Return the diagram as an SVG document, with a newline at its end."""
    labels = [label(edge.when or "", diagram.taken.get(index, 0)) for index, edge in enumerate(diagram.outline.edges)]
    scene = Stage(diagram.outline, diagram.entry, labels, across=direction == "LR").scene()
    title_line = one_line(title, 18, TITLE_WIDTH_MAX_PX)
    subtitle_line = one_line(subtitle, 12, TITLE_WIDTH_MAX_PX)
    told = max(width_of(title_line, 18, bold=True), width_of(subtitle_line, 12))
    width = max(WIDTH_MIN_PX, scene.size.width, told) + 2 * MARGIN_PX
    top = MARGIN_PX + (26 if title_line else 0) + (18 if subtitle_line else 0) + (14 if title_line or subtitle else 0)
    key, key_px = legend(diagram, MARGIN_PX, top + scene.size.height + 30, width - 2 * MARGIN_PX)
    height = top + scene.size.height + (30 + key_px if key else 0) + MARGIN_PX
    left = (width - scene.size.width) / 2
    lines = [*_opening(diagram, title, Size(width, height)), *_heading(title_line, subtitle_line)]
    lines.append(f'<g transform="translate({number(left)} {number(top)})">')
    lines += Shapes(diagram, labels).all(scene)
    lines += ["</g>", *key, "</svg>"]
    return "\n".join(lines) + "\n"


def _opening(diagram: Diagram, title: str, size: Size) -> Iterator[str]:
    name = title.strip() or "Diagram"
    told = describe(diagram)
    # Several drawings may be in one page, so that each needs different ids.
    own = f"{zlib.crc32((name + told).encode(errors='replace')):08x}"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="callboard" role="img" viewBox="0 0 {number(size.width)} '
        f'{number(size.height)}" width="{number(size.width)}" height="{number(size.height)}" '
        f'aria-labelledby="title-{own} desc-{own}">'
    )
    yield f'<title id="title-{own}">{escape_xml(name)}</title>'
    yield f'<desc id="desc-{own}">{escape_xml(told)}</desc>'
    yield f"<style>\n{css()}\n</style>"
    yield f'<rect class="paper" width="{number(size.width)}" height="{number(size.height)}" rx="12"/>'


def _heading(title: str, subtitle: str) -> Iterator[str]:
    y = MARGIN_PX + 14
    if title:
        yield f'<text class="title" x="{number(MARGIN_PX)}" y="{number(y)}">{escape_xml(title)}</text>'
        y += 20
    if subtitle:
        yield f'<text class="subtitle" x="{number(MARGIN_PX)}" y="{number(y)}">{escape_xml(subtitle)}</text>'


def describe(diagram: Diagram) -> str:
    """Describe the diagram in words, cut to `DESCRIPTION_CHARS_MAX` characters."""
    names = {node.id: node.name.strip() or node.id for node in diagram.outline.nodes}
    said = [f"Begins at {names[diagram.entry]}."] if diagram.entry in names else []
    for index, edge in enumerate(diagram.outline.edges):
        if edge.source in names and edge.target in names:
            when = f", when {edge.when.strip()}" if edge.when and edge.when.strip() else ""
            count = diagram.taken.get(index, 0)
            taken = f"; taken {count}×" if count else ""
            said.append(f"{names[edge.source]} leads to {names[edge.target]}{when}{taken}.")
    said += [f"{names[node]}: {colour}." for node, colour in diagram.colours.items() if node in names]
    text = " ".join(" ".join(said).split())
    return text if len(text) <= DESCRIPTION_CHARS_MAX else text[: DESCRIPTION_CHARS_MAX - 1] + "…"
