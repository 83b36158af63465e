"""The styles of a drawing: colours for light and for dark surroundings, as CSS below the class of the drawing.

Plain rules without variables: many programs that turn SVG into pictures know no more.
"""

from typing import NamedTuple

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
    edge="#64748b",
    faint="#b6c2d2",
    taken="#15803d",
    box="#f8fafc",
    chip="#e2e8f0",
    tints={
        "plain": Tint("#f5f8ff", "#6d8fd8", "#0f172a"),
        "current": Tint("#fff8e6", "#d97706", "#451a03"),
        "success": Tint("#ecfdf3", "#16a34a", "#052e16"),
        "failed": Tint("#fef2f2", "#dc2626", "#450a0a"),
        "skipped": Tint("#f8fafc", "#64748b", "#334155"),
        "cancelled": Tint("#faf5ff", "#9333ea", "#3b0764"),
        "unreached": Tint("#f8fafc", "#cbd5e1", "#64748b"),
    },
)

DARK = Palette(
    paper="#0d1420",
    ink="#e6edf6",
    soft="#94a3b8",
    edge="#8494ab",
    faint="#3d4b60",
    taken="#4ade80",
    box="#121c2b",
    chip="#2b394d",
    tints={
        "plain": Tint("#16233b", "#5b7fc7", "#e6edf6"),
        "current": Tint("#33240a", "#fbbf24", "#fef3c7"),
        "success": Tint("#0c2a1b", "#22c55e", "#dcfce7"),
        "failed": Tint("#351215", "#f87171", "#fee2e2"),
        "skipped": Tint("#172231", "#8494ab", "#cbd5e1"),
        "cancelled": Tint("#27143d", "#c084fc", "#f3e8ff"),
        "unreached": Tint("#121c2b", "#334155", "#8494ab"),
    },
)


def css() -> str:
    """Return the style sheet: shapes, light colours, and dark ones for whoever prefers them."""
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
