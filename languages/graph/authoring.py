"""The graph language for editors and for commands that read definitions: descriptions, triggers, node types."""

from collections.abc import Mapping
from typing import Any

from callboard.languages.authoring import About, Authoring, Times
from callboard.languages.graph.admit import GraphOptions, outline
from callboard.languages.graph.document import Workflow
from callboard.languages.graph.node_specs import NODE_TYPES, TEMPLATE_DEFAULTS, node_type
from callboard.languages.graph.topology import Graph
from callboard.languages.graph.triggers import entrances, match_triggers
from callboard.languages.node_types import NodeTypes
from callboard.languages.problems import Tree
from callboard.languages.source_text import read_document
from callboard.lib.canonical_json import canonical

DESCRIPTIONS: Mapping[str, str] = {
    # By ``Owner.member``, or by ``member`` for all owners.
    "nodes": "The nodes.",
    "connections": "The connections between outputs and inputs of nodes.",
    "triggers": "The ids of the nodes that a run begins with.",
    "variables": "Variables that expressions read, by name.",
    "from_node": "The node whose output is passed on.",
    "to_node": "The node that gets it.",
    "Connection.id": "The id of the connection.",
    "output_key": "Which output is passed on: `result`, `true`, `false`, `confirmed` and others. Default: result.",
    "conversion_function": "A Python function, as text, that converts what is passed on.",
    "Metadata.id": "The id of the workflow.",
    "id": "The id of the node.",
    "name": "A name for people.",
    "description": "What it is for.",
    "version": "The version of the document.",
    "created_by": "Who made it.",
    "created_time": "When it was made.",
    "tags": "Labels.",
    "type": "The type of the node, such as TRIGGER, AI_AGENT, FLOW or HUMAN_IN_THE_LOOP.",
    "subtype": "What kind of that type it is, such as WEBHOOK or IF.",
    "configurations": "The settings of the node, by its type and subtype.",
    "input_params": "Accepted without effect: the table of the node's subtype declares the input.",
    "output_params": "The output of a node whose subtype has no table; else the table declares it.",
    "attached_nodes": "The TOOL and MEMORY nodes that an AI_AGENT uses, by id.",
}


def _about(graph: Graph) -> About:
    return About(graph.name, graph.description)


def _times(graph: Graph) -> Times | None:
    """Return the times of the first CRON trigger that a run begins with."""
    first = next((graph.nodes[name] for name in graph.starts() if graph.nodes[name].subtype == "CRON"), None)
    if first is None:
        return None
    missed = first.setting("max_missed_runs")
    catch_up = missed if isinstance(missed, int) else 1
    return Times(str(first.setting("cron_expression")), str(first.setting("timezone")), catch_up)


def _with_prompt(source: str, node: str, prompt: str) -> str | None:
    tree = read_document(source)
    document: Any = tree.value if isinstance(tree, Tree) else {}
    found = [one for one in document.get("nodes", []) if node in (one.get("id"), one.get("name"))]
    if len(found) != 1 or found[0].get("type") != "AI_AGENT":
        return None
    found[0].setdefault("configurations", {})["system_prompt"] = prompt
    return canonical(document).decode()


NODES = NodeTypes(NODE_TYPES, node_type, TEMPLATE_DEFAULTS)

AUTHORING = Authoring(
    outline=outline,
    options=GraphOptions,
    about=_about,
    with_prompt=_with_prompt,
    node_types=NODES,
    times=_times,
    begun=match_triggers,
    entrances=entrances,
    schema=Workflow.model_json_schema,
    descriptions=DESCRIPTIONS,
)
