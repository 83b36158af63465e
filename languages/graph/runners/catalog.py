"""The runner of each type and subtype of node."""

from callboard.languages.graph.human.dialogue import human
from callboard.languages.graph.runners.agent import agent
from callboard.languages.graph.runners.code import code
from callboard.languages.graph.runners.control_flow import (
    condition,
    delay,
    for_each,
    loop,
    merge,
    split,
    timeout,
    while_loop,
)
from callboard.languages.graph.runners.external import external, memory, tool
from callboard.languages.graph.runners.http_requests import http_request
from callboard.languages.graph.runners.item_filter import filter_items
from callboard.languages.graph.runners.passthrough import passthrough, trigger
from callboard.languages.graph.runners.sort_order import sort
from callboard.languages.graph.runners.transformation import transform
from callboard.languages.graph.runners.waiting import wait
from callboard.languages.graph.topology import GraphNode
from callboard.languages.graph.work import Runner

RUNNERS: dict[tuple[str, str], Runner] = {
    ("FLOW", "IF"): condition,
    ("FLOW", "SPLIT"): split,
    ("FLOW", "MERGE"): merge,
    ("FLOW", "FILTER"): filter_items,
    ("FLOW", "SORT"): sort,
    ("FLOW", "WAIT"): wait,
    ("FLOW", "DELAY"): delay,
    ("FLOW", "TIMEOUT"): timeout,
    ("FLOW", "LOOP"): loop,
    ("FLOW", "WHILE"): while_loop,
    ("FLOW", "FOR_EACH"): for_each,
    ("ACTION", "HTTP_REQUEST"): http_request,
    ("ACTION", "DATA_TRANSFORMATION"): transform,
    ("ACTION", "RUN_CODE"): code,
    ("ACTION", "EXECUTE_SCRIPT"): code,
}
"""By type and subtype."""

FAMILIES: dict[str, Runner] = {
    "TRIGGER": trigger,
    "AI_AGENT": agent,
    "EXTERNAL_ACTION": external,
    "HUMAN_IN_THE_LOOP": human,
    "MEMORY": memory,
    "TOOL": tool,
}
"""By type alone."""


def runner_of(node: GraphNode) -> Runner:
    """Return a node's runner; a node of an unknown type or subtype passes its input on."""
    return RUNNERS.get((node.type, node.subtype)) or FAMILIES.get(node.type) or passthrough


def is_passed_through(node: GraphNode) -> bool:
    """Whether a node only passes its input on."""
    return runner_of(node) is passthrough
