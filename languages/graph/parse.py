"""Read the text of a graph: the result is a definition, or all problems of the text."""

from typing import Any

from pydantic import ValidationError

from callboard.bus.events import Problem
from callboard.languages.graph.document import RESULT, Node, Workflow
from callboard.languages.graph.node_specs import spec_of
from callboard.languages.graph.topology import Graph, GraphNode, Wire
from callboard.languages.graph.validate import check_beyond_shape, coerce_configurations, find_objections
from callboard.languages.plan import Definition
from callboard.languages.problems import Location, Tree, from_pydantic, in_order
from callboard.languages.source_text import read_object
from callboard.lib.canonical_json import canonical

VERSION = "1.0"
"""The version of a workflow that does not state one."""


def parse(source: str) -> Definition[Graph] | list[Problem]:
    """Read a graph, JSON or YAML; its canonical form is the canonical JSON of the document as written."""
    tree = read_object(source, "graph", "metadata, nodes, connections and triggers")
    if not isinstance(tree, Tree):
        return tree
    if (first_version := _find_first_version(tree)) is not None:
        return [first_version]
    problems = check_beyond_shape(tree)
    try:
        document = Workflow.model_validate(tree.value)
    except ValidationError as error:
        return in_order([*from_pydantic(error, Workflow, tree), *problems])
    if any(problem.severity == "error" for problem in problems):
        return in_order(problems)
    graph = _graph(document)
    objections = tuple(in_order(find_objections(tree, graph)))
    return Definition(
        "graph", graph.id, source, canonical(tree.value), graph, tuple(in_order(problems)), objections=objections
    )


def _graph(document: Workflow) -> Graph:
    apart = {name for node in document.nodes if node.type == "AI_AGENT" for name in node.attached_nodes}
    nodes = {node.id: _node(node) for node in document.nodes}
    kept = [one for one in document.connections if not {one.from_node, one.to_node} & apart]
    return Graph(
        id=document.metadata.id,
        name=document.metadata.name,
        version=document.metadata.version or VERSION,
        created_by=document.metadata.created_by or "",
        nodes={name: node for name, node in nodes.items() if name not in apart},
        attached={name: node for name, node in nodes.items() if name in apart},
        wires=tuple(
            Wire(index, one.from_node, one.to_node, one.output_key or RESULT, one.conversion_function or None)
            for index, one in enumerate(kept)
        ),
        triggers=tuple(document.triggers),
        variables=document.variables,
        description=document.metadata.description or "",
    )


def _node(node: Node) -> GraphNode:
    spec = spec_of(node.type, node.subtype)
    return GraphNode(
        id=node.id,
        name=node.name,
        type=node.type,
        subtype=node.subtype,
        configurations=coerce_configurations(spec, node.configurations),
        spec=spec,
        output_params=node.output_params,
        attached=tuple(dict.fromkeys(node.attached_nodes)),
        given=node.configurations,
    )


FIRST_VERSION = "V1_DEFINITION"

_SUFFIX = "_NODE"
"""The suffix of the types of nodes in V1."""


def _find_first_version(tree: Tree) -> Problem | None:
    """Return the problem of a V1 definition, which says how to convert it; None if it is not V1.

    ``tree`` holds an object.
    """
    document: dict[str, Any] = tree.value
    listed = document.get("nodes")
    nodes = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    typed = next((one for one in enumerate(nodes) if str(one[1].get("type", "")).endswith(_SUFFIX)), None)
    connections = document.get("connections")
    mapped = isinstance(connections, dict) and bool(connections)
    if typed is None and not mapped:
        return None
    changes: list[str] = []
    where: Location = ("connections",)
    if "metadata" not in document:
        changes.append("put `id` and `name` into `metadata`")
    if typed is not None:
        index, node = typed
        where = ("nodes", index, "type")
        changes.append(
            f"write the type {node['type'].removesuffix(_SUFFIX)} for {node['type']}, likewise for all nodes"
        )
    if any("parameters" in node and "configurations" not in node for node in nodes):
        changes.append("rename `parameters` of nodes to `configurations`")
    if mapped:
        changes.append("make `connections` a list of {from_node, to_node, output_key}")
    message = f"this is a V1 definition, and only V2 is read: {'; '.join(changes)}"
    return tree.problem(FIRST_VERSION, message, where, expected="a V2 definition")
