"""The styles of a drawing: light and dark colours, as CSS below the class of the drawing.

The rules have no variables, because many programs that convert SVG to images do not support them.
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
