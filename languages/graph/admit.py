"""The admission of a start: who starts a graph, at which node, and with which options."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from callboard.bus.commands import Scheduled, StartRun
from callboard.bus.events import Outline, OutlineEdge, OutlineNode, Problem
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.no_effect import NO_EFFECT
from callboard.languages.graph.runners.agent import OF_TRIGGER, PICTURES
from callboard.languages.graph.tools import referenced_variables
from callboard.languages.graph.topology import Graph
from callboard.languages.graph.turn_parameters import wanted_parameters
from callboard.languages.plan import Definition, Needs, Plan
from callboard.languages.problems import FIELDS_LISTED_MAX, Tree, from_pydantic, hint_at
from callboard.lib.json_types import JSON


class Trigger(BaseModel):
    """The trigger of an execution, as the start's options describe it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    trigger_type: str | None = None
    trigger_data: Any = None
    user_id: str | None = None
    external_request_id: str | None = None
    timestamp: int | float | None = None


class GraphOptions(BaseModel):
    """The options of a start of a graph.

    ``parallel`` lets independent branches overlap. ``skip_trigger_validation`` is accepted and has no effect.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    start_from_node: str | None = None
    trigger: Trigger | str | None = None
    user_id: str | None = None
    parallel: bool = False
    skip_trigger_validation: bool = False


def admit(definition: Definition[Graph], start: StartRun) -> Plan[Graph] | list[Problem]:
    """Make a plan of a definition and a start, or return all problems of the start.

    ``Plan.input`` is the trigger data. ``Plan.options`` has ``start_from_node``, ``parallel``, ``trigger`` (type, user
    and the rest of the TriggerInfo, as far as the start gives them) and ``scripted_tools`` (the tools that the run's
    script answers for). ``Plan.needs`` has ``environment``, the variables whose values the tools may get. It asks for
    no default model, since every agent names its own.
    """
    graph = definition.document
    problems = [*_surplus(start), *_breakpoints(graph, start)]
    options = GraphOptions()
    try:
        options = GraphOptions.model_validate(start.options)
    except ValidationError as error:
        problems += from_pydantic(error, GraphOptions, Tree({"options": start.options}), ("options",))
    problems += _start_node(graph, start.options.get("start_from_node"))
    if problems:
        return problems
    trigger = Trigger(trigger_type=options.trigger) if isinstance(options.trigger, str) else options.trigger
    trigger = trigger or Trigger()
    given = start.input if start.input is not None else trigger.trigger_data
    if given is None and start.scheduled is not None:
        given = _due(start.scheduled, start.run_id)
    trigger_info = _trigger(graph, start, options, trigger)
    return Plan(
        definition=definition,
        input={} if given is None else given,
        arguments={},
        behalf=user_of(graph, trigger_info["user_id"], given),
        options={
            "start_from_node": options.start_from_node,
            "parallel": options.parallel,
            "workflow_version": graph.version,
            "trigger": trigger_info,
            "scripted_tools": _scripted_tools(start),
        },
        outline=outline(graph),
        needs=Needs(
            model=False,
            environment=sorted(referenced_variables([*graph.nodes.values(), *graph.attached.values()])),
            parameters=wanted_parameters(graph.nodes.values()),
        ),
        warnings=(
            *definition.warnings,
            *_warn_of_plain_input(graph, options, given),
            *_warn_of_pictures(graph, given),
        ),
    )


def _warn_of_pictures(graph: Graph, given: JSON) -> list[Problem]:
    """Warn if the input brings pictures for an agent, since no agent sends them to its model."""
    agents = [node.id for node in graph.nodes.values() if node.type == "AI_AGENT"]
    if not agents or not isinstance(given, dict) or not given.get(PICTURES):
        return []
    message = f"`{PICTURES}` has no effect: the agents ({', '.join(agents)}) do not send pictures to their models"
    return [Problem(NO_EFFECT, message, f"input.{PICTURES}", severity="warning")]


def _warn_of_plain_input(graph: Graph, options: GraphOptions, given: JSON) -> list[Problem]:
    """Warn if the input of a WEBHOOK trigger does not have the form of a request."""
    first = graph.nodes[options.start_from_node or graph.starts()[0]]
    if (first.type, first.subtype) != ("TRIGGER", "WEBHOOK") or not isinstance(given, dict) or first.spec is None:
        return []
    if not given or given.keys() & {*first.spec.output_params, *OF_TRIGGER, "event", "user_id"}:
        return []
    listed = ", ".join(list(given)[:FIELDS_LISTED_MAX])
    message = (
        f"the trigger {first.id!r} is a WEBHOOK, but the input has none of the members of a request; it has {listed}. "
        "The node passes them on unchanged; a request from outside has its data in `body`"
    )
    return [Problem("NOT_A_REQUEST", message, "input", expected='{"body": {…}}', severity="warning")]


def user_of(graph: Graph, named: JSON, data: JSON) -> str:
    """Return the user of an execution: the named one, else that of the trigger data, else the author of the graph.

    The text is empty if none of these names a user.
    """
    of_data = data.get("user_id") if isinstance(data, dict) else None
    return str(next((one for one in (named, of_data, graph.created_by) if one), ""))


def _surplus(start: StartRun) -> list[Problem]:
    """Refuse members of a start that only other languages use."""
    problems: list[Problem] = []
    if start.arguments:
        problems.append(Problem("SCHEMA", "a graph takes no arguments", "arguments", expected="input"))
    if start.state is not None:
        problems.append(Problem("SCHEMA", "a graph takes no state document", "state", expected="none; a fork goes on"))
    return problems


def _breakpoints(graph: Graph, start: StartRun) -> list[Problem]:
    problems: list[Problem] = []
    for index, name in enumerate(start.breakpoints):
        if name in graph.nodes:
            continue
        attached = f"{name!r} is attached to an agent and is never executed as a node"
        message = attached if name in graph.attached else f"unknown node {name!r}"
        problems.append(Problem("UNKNOWN_BREAKPOINT", message, f"breakpoints[{index}]", expected="a node's id"))
    return problems


def _start_node(graph: Graph, name: JSON) -> list[Problem]:
    if not isinstance(name, str) or name in graph.nodes:
        return []
    message = f"cannot start from the unknown node {name!r}{hint_at(name, graph.nodes)}"
    return [Problem("UNKNOWN_NODE", message, "options.start_from_node", expected="the id of a node of the graph")]


def _due(scheduled: Scheduled, run_id: str | None) -> dict[str, JSON]:
    """Return the data of a CRON trigger."""
    return {
        "trigger_time": scheduled.due,
        "scheduled_time": scheduled.due,
        "execution_id": run_id,
        "timezone": scheduled.timezone,
        "trigger_message": f"Due at {scheduled.due} by schedule {scheduled.schedule}",
    }


def _trigger(graph: Graph, start: StartRun, options: GraphOptions, trigger: Trigger) -> dict[str, JSON]:
    first = graph.nodes[graph.starts()[0]]
    begun_by = "CRON" if start.scheduled is not None else first.subtype if first.type == "TRIGGER" else "MANUAL"
    return {
        "trigger_type": trigger.trigger_type or begun_by,
        "user_id": options.user_id or trigger.user_id,
        "external_request_id": trigger.external_request_id,
        "timestamp": trigger.timestamp,
    }


def _scripted_tools(start: StartRun) -> list[str]:
    tools = (start.script or {}).get("tools")
    return sorted(tools) if isinstance(tools, dict) else []


def outline(graph: Graph) -> Outline:
    """Return the nodes and connections of a graph, without attached nodes.

    The ``when`` of an edge is the port that it leaves by, None for ``result``.
    """
    return Outline(
        nodes=[OutlineNode(node.id, node.name, node.type, node.subtype) for node in graph.nodes.values()],
        edges=[
            OutlineEdge(wire.source, wire.target, None if wire.output_key == RESULT else wire.output_key)
            for wire in graph.wires
        ],
    )
