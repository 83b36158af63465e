"""Entrances of graphs: which triggers take requests in, and how their senders show who they are."""

from collections.abc import Callable, Mapping
from typing import Literal

from callboard.languages.graph.topology import Graph, GraphNode
from callboard.languages.triggers import Entrance, Proof

_PROOFS: Mapping[str, Proof] = {
    "none": "none",
    "header_token": "header",
    "query_param": "query",
    "signature": "signature",
}
"""By the ``authentication`` of a webhook."""


def entrances(graph: Graph) -> list[Entrance]:
    """Return the entrances of the triggers that a run begins with."""
    found = (graph.nodes[name] for name in graph.starts())
    return [_OPENED[node.subtype](node) for node in found if node.type == "TRIGGER" and node.subtype in _OPENED]


def _webhook(node: GraphNode) -> Entrance:
    # What is not a mode of authentication is taken for the strictest one.
    proof = _PROOFS.get(str(node.setting("authentication")), "signature")
    methods = node.setting("allowed_methods")
    named = tuple(str(one).upper() for one in methods) if isinstance(methods, list) else ()
    wanted = node.setting("response_format")
    answer: Literal["json", "text", "html"] = "text" if wanted == "text" else "html" if wanted == "html" else "json"
    return Entrance(node.id, proof, str(node.setting("webhook_path") or ""), named or ("POST",), answer)


_OPENED: Mapping[str, Callable[[GraphNode], Entrance]] = {
    "WEBHOOK": _webhook,
    "GITHUB": lambda node: Entrance(node.id, "github"),
    "SLACK": lambda node: Entrance(node.id, "slack"),
    "EMAIL": lambda node: Entrance(node.id, "token"),
}
