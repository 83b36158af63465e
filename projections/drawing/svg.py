"""A diagram as a self-contained SVG drawing, without scripts, fonts or external resources.

Colours follow the reader's preference for light or dark. Every node and edge has a title that shows on hover, and the
drawing has a description for screen readers. Its legend has the marks and colours that occur in it.

Styles are CSS below the class of the drawing. The rules have no variables, because many programs that convert SVG to
images do not support them.
"""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from callboard.projections.drawing.cards import label
from callboard.projections.drawing.diagram import Diagram, Direction, NodeLook, look_of
from callboard.projections.drawing.graph import Size
from callboard.projections.drawing.scene import SceneLayout
from callboard.projections.drawing.shapes import Shapes, is_caught
from callboard.projections.drawing.strokes import number
from callboard.projections.drawing.text import escape_xml, one_line, width_of

FONTS = (
    'ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", "DejaVu Sans",'
    " sans-serif"
)
MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace'


class Tint(NamedTuple):
    """Fill and line of a card, and the colour of its text."""

    fill: str
    line: str
    text: str


class Palette(NamedTuple):
    """The colours of a drawing."""

    paper: str
    ink: str
    soft: str
    edge: str
    faint: str
    taken: str
    box: str
    chip: str
    tints: dict[str, Tint]


LIGHT = Palette(
    paper="#ffffff",
    ink="#0f172a",
    soft="#5b6b82",
    edge="#5b6b82",
    faint="#8190a7",
    taken="#088259",
    box="#f8fafc",
    chip="#e2e8f0",
    tints={
        "plain": Tint("#f8fafc", "#5b6b82", "#0f172a"),
        "current": Tint("#f3f6ff", "#0a47f8", "#0b1f5c"),
        "success": Tint("#f2fcf8", "#088259", "#052e16"),
        "failed": Tint("#fef5f4", "#cd0807", "#450a0a"),
        "skipped": Tint("#f8fafc", "#394958", "#334155"),
        "cancelled": Tint("#fcf7ff", "#8627a0", "#3b0764"),
        "unreached": Tint("#f8fafc", "#8190a7", "#5b6b82"),
    },
)

DARK = Palette(
    paper="#0a101a",
    ink="#e6edf6",
    soft="#94a3b8",
    edge="#8494ab",
    faint="#5a6b84",
    taken="#d5f4e5",
    box="#0d1521",
    chip="#2b394d",
    tints={
        "plain": Tint("#172231", "#94a3b8", "#e6edf6"),
        "current": Tint("#0f2136", "#74bdfe", "#e0f0ff"),
        "success": Tint("#0f231c", "#d5f4e5", "#e6f9ef"),
        "failed": Tint("#1a0a0d", "#fd1432", "#fee2e2"),
        "skipped": Tint("#0f1826", "#788691", "#cbd5e1"),
        "cancelled": Tint("#170a24", "#b245fd", "#f3e8ff"),
        "unreached": Tint("#0d1521", "#5a6b84", "#94a3b8"),
    },
)


def css() -> str:
    """Return the style sheet: shapes, light colours, and dark colours for readers who prefer them."""
    dark = "\n".join(f"  {line}" for line in _colours(DARK))
    return "\n".join([*_SHAPES, *_colours(LIGHT), "@media (prefers-color-scheme: dark) {", dark, "}"])


_SHAPES = [
    f".callboard text {{ font-family: {FONTS}; }}",
    ".callboard .title { font-size: 18px; font-weight: 700; }",
    ".callboard .subtitle { font-size: 12px; }",
    ".callboard .name { font-size: 14px; font-weight: 600; text-anchor: middle; }",
    f".callboard .aside {{ font-size: 11px; text-anchor: middle; font-family: {MONO}; }}",
    ".callboard .label { font-size: 12px; text-anchor: middle; }",
    ".callboard .key { font-size: 11px; }",
    ".callboard .card { stroke-width: 1.5; }",
    ".callboard .current .card, .callboard .failed .card { stroke-width: 2.25; }",
    ".callboard .skipped .card { stroke-dasharray: 5 4; }",
    ".callboard .mark { fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }",
    ".callboard .way { fill: none; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round; }",
    ".callboard .taken .way { stroke-width: 2.5; }",
    ".callboard .other .way { stroke-dasharray: 5 5; }",
    ".callboard .caught .way { stroke-dasharray: 1 5; }",
    ".callboard .chip { stroke-width: 1; }",
    ".callboard .ring { fill: none; stroke-width: 2; }",
]


def _colours(palette: Palette) -> list[str]:
    lines = [
        f".callboard .paper {{ fill: {palette.paper}; }}",
        f".callboard .title, .callboard .label {{ fill: {palette.ink}; }}",
        f".callboard .subtitle, .callboard .aside, .callboard .key {{ fill: {palette.soft}; }}",
        f".callboard .chip {{ fill: {palette.paper}; stroke: {palette.chip}; }}",
        f".callboard .rule {{ stroke: {palette.chip}; }}",
        f".callboard .mark {{ stroke: {palette.paper}; }}",
        f".callboard .other .label {{ fill: {palette.soft}; }}",
    ]
    for kind, colour in (("plain", palette.edge), ("taken", palette.taken), ("other", palette.faint)):
        lines += [
            f".callboard .{kind} .way, .callboard .{kind} .ring {{ stroke: {colour}; }}",
            f".callboard .{kind} .head, .callboard .{kind} .dot {{ fill: {colour}; }}",
        ]
    for kind, tint in palette.tints.items():
        lines += [
            f".callboard .{kind} .card {{ fill: {tint.fill}; stroke: {tint.line}; }}",
            f".callboard .{kind} .name {{ fill: {tint.text}; }}",
            f".callboard .{kind} .badge {{ fill: {tint.line}; stroke: {palette.paper}; }}",
        ]
    lines.append(f".callboard .inner .card {{ fill: {palette.box}; }}")
    return lines


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


MARGIN_PX = 28.0
WIDTH_MIN_PX = 320.0
TITLE_WIDTH_MAX_PX = 900.0
DESCRIPTION_CHARS_MAX = 4_000


def svg(diagram: Diagram, *, direction: Direction = "TB", title: str = "", subtitle: str = "") -> str:
    """Return the diagram as an SVG document, with a newline at its end."""
    labels = [label(edge.when or "", diagram.taken.get(index, 0)) for index, edge in enumerate(diagram.outline.edges)]
    scene = SceneLayout(diagram.outline, diagram.entry, labels, across=direction == "LR").scene()
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
