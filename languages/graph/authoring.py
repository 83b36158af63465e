"""What the graph language offers to those who write in it."""

from callboard.languages.authoring import About, Authoring, Times
from callboard.languages.graph.admit import Options
from callboard.languages.graph.descriptions import DESCRIPTIONS
from callboard.languages.graph.document import Workflow
from callboard.languages.graph.entrances import entrances
from callboard.languages.graph.node_specs import NODE_TYPES, TEMPLATE_DEFAULTS, node_type
from callboard.languages.graph.outline import outline
from callboard.languages.graph.topology import Graph
from callboard.languages.graph.triggers import match_triggers
from callboard.languages.node_types import NodeTypes


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


NODES = NodeTypes(NODE_TYPES, node_type, TEMPLATE_DEFAULTS)

AUTHORING = Authoring(
    outline=outline,
    options=Options,
    about=_about,
    node_types=NODES,
    times=_times,
    begun=match_triggers,
    entrances=entrances,
    schema=Workflow.model_json_schema,
    descriptions=DESCRIPTIONS,
)
