"""The diagram of a run: its definition's outline, coloured by what has happened, as data and as Mermaid text."""

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from callboard.bus.events import Event, NodeEnter, NodeExit, Outline, Route, RunAccepted
from callboard.bus.paths import last_id
from callboard.projections.edges import edge_index
from callboard.projections.projection import known

Direction = Literal["TB", "LR"]

NodeColour = Literal["current", "success", "failed", "skipped", "cancelled"]

_COLOUR_OF: dict[str, NodeColour] = {
    "ok": "success",
    "failed": "failed",
    "skipped": "skipped",
    "cancelled": "cancelled",
}

_CLASSES: Mapping[NodeColour, str] = {
    "current": "fill:#fff3bf,stroke:#f08c00,stroke-width:3px,color:#000",
    "success": "fill:#d3f9d8,stroke:#2b8a3e,color:#000",
    "failed": "fill:#ffe3e3,stroke:#c92a2a,color:#000",
    "skipped": "fill:#f1f3f5,stroke:#868e96,stroke-dasharray:4 3,color:#000",
    "cancelled": "fill:#f3d9fa,stroke:#862e9c,color:#000",
}

_NO_NAME = "–"
"""Label of a node without a name: Mermaid takes no empty one."""

_TAKEN_LINK = "stroke:#2b8a3e,stroke-width:3px"
_OTHER_LINK = "stroke:#adb5bd,stroke-dasharray:5 4"


class Diagram(Struct, frozen=True):
    """An outline with the colour of each node, how often each edge (by index) was taken, and where it all began."""

    outline: Outline
    colours: dict[str, NodeColour]
    taken: dict[int, int]
    entry: str | None


class DiagramFold:
    """Folds one run into a `Diagram`. What the outline does not show (inner nodes, the end) is left out."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._ids: frozenset[str] = frozenset()
        self._colours: dict[str, NodeColour] = {}
        self._taken: Counter[int] = Counter()
        self._entry: str | None = None
        self._node_at: dict[str, str] = {}

    def apply(self, event: Event) -> None:
        match known(event):
            case RunAccepted(outline=outline):
                self._outline = outline
                self._ids = frozenset(node.id for node in outline.nodes)
                self._entry = _entry_of(outline)
            case NodeEnter(node=node):
                self._enter(event.path, node)
            case NodeExit(outcome=outcome):
                if (node := self._node_at.get(event.path)) is not None:
                    self._colours[node] = _COLOUR_OF[outcome]
            case Route() as route:
                index = edge_index(self._outline, route)
                if index is not None:
                    self._taken[index] += 1
            case _:
                pass

    def view(self) -> Diagram:
        return Diagram(self._outline, dict(self._colours), dict(self._taken), self._entry)

    def _enter(self, path: str, node: str) -> None:
        shown = next((name for name in (path, node, last_id(path)) if name in self._ids), None)
        if shown is None:
            return
        if not self._node_at:
            self._entry = shown
        self._node_at[path] = shown
        self._colours[shown] = "current"


def _entry_of(outline: Outline) -> str | None:
    """Before the first enter: the first node that no edge leads to, else the first of all."""
    targets = {edge.target for edge in outline.edges}
    ids = [node.id for node in outline.nodes]
    return next((name for name in ids if name not in targets), ids[0] if ids else None)


def mermaid(diagram: Diagram, *, direction: Direction = "TB", title: str | None = None) -> str:
    """Return the diagram as a Mermaid flowchart, with a newline at its end.

    The entry is a stadium with a play mark; edges that were taken are thick and say how often, others are dashed once
    anything has happened.
    """
    lines = ["---", f"title: {_quoted(title)}", "---"] if title else []
    lines.append(f"flowchart {direction}")
    lines += [_node(node.id, node.name, node.id == diagram.entry) for node in diagram.outline.nodes]
    drawn = {node.id for node in diagram.outline.nodes}
    styles: list[str] = []
    position = 0
    for index, edge in enumerate(diagram.outline.edges):
        if edge.source not in drawn or edge.target not in drawn:
            continue
        count = diagram.taken.get(index, 0)
        lines.append(_edge(edge.source, edge.target, edge.when, count))
        if diagram.colours:
            styles.append(f"    linkStyle {position} {_TAKEN_LINK if count else _OTHER_LINK}")
        position += 1
    lines += styles
    for colour, style in _CLASSES.items():
        members = [_mermaid_id(node.id) for node in diagram.outline.nodes if diagram.colours.get(node.id) == colour]
        if members:
            lines += [f"    classDef {colour} {style}", f"    class {','.join(members)} {colour}"]
    return "\n".join(lines) + "\n"


def _node(node: str, name: str, entry: bool) -> str:
    label = _escaped(name or node).strip() or _NO_NAME
    return f'    {_mermaid_id(node)}(["▶ {label}"])' if entry else f'    {_mermaid_id(node)}["{label}"]'


def _edge(source: str, target: str, when: str | None, count: int) -> str:
    words = [_escaped(when)] if when and when.strip() else []
    if count:
        words.append(f"taken {count}×")
    label = f'|"{" · ".join(words)}"|' if words else ""
    return f"    {_mermaid_id(source)} {'==>' if count else '-->'}{label} {_mermaid_id(target)}"


def _mermaid_id(node: str) -> str:
    """Spell any id with letters, digits and underscores, so that different ids stay different.

    The prefix keeps it from being a word of Mermaid's own, such as ``end``.
    """
    return "n_" + "".join(_spelled(character) for character in node)


def _spelled(character: str) -> str:
    if character.isascii() and character.isalnum():
        return character
    return "__" if character == "_" else f"_x{ord(character):x}_"


_ESCAPES = {ord(character): f"#{ord(character)};" for character in '"#&;<>[](){}|`\\'} | {10: "<br/>", 13: None}


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{inner}"'
