"""What editors show of each member of a graph: by ``Owner.member``, or by ``member`` for all owners."""

from collections.abc import Mapping

DESCRIPTIONS: Mapping[str, str] = {
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
    "input_params": "Defaults of the input.",
    "output_params": "Defaults of the output.",
    "attached_nodes": "The TOOL and MEMORY nodes that an AI_AGENT uses, by id.",
}
