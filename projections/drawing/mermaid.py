"""A diagram as a Mermaid flowchart."""

import re
from collections.abc import Iterator, Mapping

from callboard.bus.events import OutlineNode
from callboard.bus.paths import decode_id, parent
from callboard.projections.drawing.diagram import Diagram, Direction, NodeLook, look_of
from callboard.projections.drawing.edges import CAUGHT, INNER, holder

_CLASSES: Mapping[NodeLook, str] = {
    "current": "fill:#fff3bf,stroke:#f08c00,stroke-width:3px,color:#000",
    "success": "fill:#d3f9d8,stroke:#2b8a3e,color:#000",
    "failed": "fill:#ffe3e3,stroke:#c92a2a,color:#000",
    "skipped": "fill:#f1f3f5,stroke:#868e96,stroke-dasharray:4 3,color:#000",
    "cancelled": "fill:#f3d9fa,stroke:#862e9c,color:#000",
    "unreached": "fill:#f8f9fa,stroke:#ced4da,color:#868e96",
}

_NO_NAME = "–"
"""The label of a node without a name, because Mermaid does not accept an empty label."""

_TAKEN_LINK = "stroke:#2b8a3e,stroke-width:3px"
_OTHER_LINK = "stroke:#adb5bd,stroke-dasharray:5 4"


def draw_mermaid(diagram: Diagram, *, direction: Direction = "TB", title: str | None = None) -> str:
    """Return the diagram as a Mermaid flowchart, with a newline at its end.

    The entry has a play mark and is a stadium, unless its type has another shape. The inside of a node (a subflow, the
    dispatches of a Gather) is a subgraph. Edges that were taken are thick and show how often. Other edges are dashed
    after the first event of a node. Edges that only failures take are dotted.
    """
    lines = ["---", f"title: {_quote(title)}", "---"] if title else []
    lines.append(f"flowchart {direction}")
    lines += _nodes(diagram)
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
    for look, style in _CLASSES.items():
        members = [_mermaid_id(node.id) for node in diagram.outline.nodes if look_of(diagram, node.id) == look]
        if members:
            lines += [f"    classDef {look} {style}", f"    class {','.join(members)} {look}"]
    return "\n".join(lines) + "\n"


def _nodes(diagram: Diagram) -> list[str]:
    """Write the nodes. Inner nodes are in subgraphs, each after the node that contains it."""
    inside: dict[str, list[OutlineNode]] = {}
    ids = {node.id for node in diagram.outline.nodes}
    for node in diagram.outline.nodes:
        box = _box_of(node.id)
        inside.setdefault(box if holder(box) in ids else "", []).append(node)
    boxes = [box for box in inside if box]

    def level(box: str, indent: str) -> Iterator[str]:
        for node in inside.get(box, ()):
            yield indent + _node(node, node.id == diagram.entry)
            for below in (one for one in boxes if holder(one) == node.id):
                yield f'{indent}subgraph {_mermaid_id(below)}["{_escape(_box_title(below))}"]'
                yield from level(below, f"{indent}    ")
                yield f"{indent}end"

    return list(level("", "    "))


def _box_of(node: str) -> str:
    """Return the path of the call or the dispatch that contains a node; empty for the outermost level."""
    box = parent(node)
    return box if INNER.search(box.rpartition("/")[2]) else ""


def _box_title(box: str) -> str:
    segment = box.rpartition("/")[2]
    index = re.search(r"\[(\d*)\]", segment)
    aside = "" if index is None else f" · {index[1] or 'for each'}"
    return f"{decode_id(segment)}{aside}"


_SHAPES: Mapping[str, tuple[str, str]] = {
    "Call": ("[", "]"),
    "Gather": ("[[", "]]"),
    "Match": ("{", "}"),
    "Pass": ("(", ")"),
    "Sleep": ("[/", "/]"),
    "Return": ("([", "])"),
    "Raise": ("{{", "}}"),
}
"""The shapes of nodes by type. Other types are boxes, or stadiums for the entry."""


def _node(node: OutlineNode, entry: bool) -> str:
    label = _escape(node.name or node.id).strip() or _NO_NAME
    left, right = _SHAPES.get(node.type, ("([", "])") if entry else ("[", "]"))
    if node.type in _SHAPES and node.subtype:
        label += f"<br/>{_escape(node.subtype)}"
    return f'{_mermaid_id(node.id)}{left}"{"▶ " if entry else ""}{label}"{right}'


def _edge(source: str, target: str, when: str | None, count: int) -> str:
    words = [_escape(when)] if when and when.strip() else []
    if count:
        words.append(f"taken {count}×")
    label = f'|"{" · ".join(words)}"|' if words else ""
    arrow = "-.->" if (when or "").startswith(CAUGHT) else "==>" if count else "-->"
    return f"    {_mermaid_id(source)} {arrow}{label} {_mermaid_id(target)}"


def _mermaid_id(node: str) -> str:
    """Encode an id in letters, digits and underscores, so that different ids stay different.

    The prefix prevents a reserved word of Mermaid, such as ``end``.
    """
    return "n_" + "".join(_encode_character(character) for character in node)


def _encode_character(character: str) -> str:
    if character.isascii() and character.isalnum():
        return character
    return "__" if character == "_" else f"_x{ord(character):x}_"


_ESCAPES = {ord(character): f"#{ord(character)};" for character in '"#&;<>[](){}|`\\'} | {10: "<br/>", 13: None}


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)


def _quote(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{inner}"'
