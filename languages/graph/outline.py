"""A graph's outline: its nodes and connections, attached ones left out; an edge's ``when`` is the port it leaves by."""

from callboard.bus.events import Outline, OutlineEdge, OutlineNode
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.topology import Graph


def outline(graph: Graph) -> Outline:
    """Return the shape of a graph."""
    return Outline(
        nodes=[OutlineNode(node.id, node.name, node.type, node.subtype) for node in graph.nodes.values()],
        edges=[
            OutlineEdge(wire.source, wire.target, None if wire.output_key == RESULT else wire.output_key)
            for wire in graph.wires
        ],
    )
