"""What the graph language offers to those who write in it."""

from callboard.languages.authoring import About, Authoring
from callboard.languages.graph.admit import Options
from callboard.languages.graph.node_specs import NODE_TYPES, TEMPLATE_DEFAULTS, node_type
from callboard.languages.graph.outline import outline
from callboard.languages.graph.wiring import Graph
from callboard.languages.node_types import NodeTypes


def _about(graph: Graph) -> About:
    return About(graph.name, graph.description)


NODES = NodeTypes(NODE_TYPES, node_type, TEMPLATE_DEFAULTS)

AUTHORING = Authoring(outline=outline, options=Options, about=_about, node_types=NODES)
