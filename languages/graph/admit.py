"""The admission of a start: who starts a graph, at which node, and with which options."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from callboard.bus.commands import Scheduled, StartRun
from callboard.bus.events import Outline, OutlineEdge, OutlineNode, Problem
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.rules import LATEST
from callboard.languages.graph.runners.agent import OF_TRIGGER
from callboard.languages.graph.tools import referenced_variables
from callboard.languages.graph.topology import Graph
from callboard.languages.graph.turn_parameters import wanted_parameters
from callboard.languages.language import RULES, Definition, Needs, Plan
from callboard.languages.problems import FIELDS_LISTED_MAX, Tree, from_pydantic, hint_at
from callboard.lib.json_types import JSON


class Trigger(BaseModel):
    """What set the execution off, where that is more than the start's input."""

    model_config = ConfigDict(extra="forbid", strict=True)
    trigger_type: str | None = None
    trigger_data: Any = None
    user_id: str | None = None
    external_request_id: str | None = None
    timestamp: int | float | None = None


class Options(BaseModel):
    """What a start may say about how a graph runs.

    ``parallel`` lets independent branches overlap. ``skip_trigger_validation`` is accepted and has no effect.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    start_from_node: str | None = None
    trigger: Trigger | str | None = None
    user_id: str | None = None
    parallel: bool = False
    skip_trigger_validation: bool = False


def admit(definition: Definition[Graph], start: StartRun) -> Plan[Graph] | list[Problem]:
    """Make a plan of a definition and a start.

    ``Plan.input`` is the trigger data. ``Plan.options`` has ``start_from_node``, ``parallel``, ``trigger`` (type, user
    and the rest of the TriggerInfo, as far as the start says), ``scripted_tools``, the tools that the run's script
    answers for, and ``rules``, the generation of the run. ``Plan.needs`` has ``environment``, the variables whose
    values its tools may be given, and says that no model is needed: every agent names its own.
    """
    graph = definition.document
    problems = [*_surplus(start), *_breakpoints(graph, start)]
    options = Options()
    try:
        options = Options.model_validate(start.options)
    except ValidationError as error:
        problems += from_pydantic(error, Options, Tree({"options": start.options}), ("options",))
    problems += _start_node(graph, start.options.get("start_from_node"))
    if problems:
        return problems
    trigger = Trigger(trigger_type=options.trigger) if isinstance(options.trigger, str) else options.trigger
    trigger = trigger or Trigger()
    given = start.input if start.input is not None else trigger.trigger_data
    if given is None and start.scheduled is not None:
        given = _due(start.scheduled, start.run_id)
    told = _trigger(graph, start, options, trigger)
    return Plan(
        definition=definition,
        input={} if given is None else given,
        arguments={},
        behalf=user_of(graph, told["user_id"], given),
        options={
            "start_from_node": options.start_from_node,
            "parallel": options.parallel,
            "workflow_version": graph.version,
            "trigger": told,
            "scripted_tools": _scripted_tools(start),
            RULES: LATEST,
        },
        outline=outline(graph),
        needs=Needs(
            model=False,
            environment=sorted(referenced_variables([*graph.nodes.values(), *graph.attached.values()])),
            parameters=wanted_parameters(graph.nodes.values()),
        ),
        warnings=(*definition.warnings, *_warn_of_plain_input(graph, options, given)),
    )


def _warn_of_plain_input(graph: Graph, options: Options, given: JSON) -> list[Problem]:
    """Warn of an input that is not what a request from outside would bring to the trigger that it starts."""
    first = graph.nodes[options.start_from_node or graph.starts()[0]]
    if (first.type, first.subtype) != ("TRIGGER", "WEBHOOK") or not isinstance(given, dict) or first.spec is None:
        return []
    if not given or given.keys() & {*first.spec.output_params, *OF_TRIGGER, "event", "user_id"}:
        return []
    listed = ", ".join(list(given)[:FIELDS_LISTED_MAX])
    message = (
        f"the trigger {first.id!r} is a WEBHOOK, and the input has none of a request's members, but {listed}; "
        "they go on as they are, while a request from outside brings its data in `body`"
    )
    return [Problem("NOT_A_REQUEST", message, "input", expected='{"body": {…}}', severity="warning")]


def user_of(graph: Graph, named: JSON, data: JSON) -> str:
    """Return on whose behalf an execution is: of whom is named, of the trigger's data, or of who made the graph."""
    of_data = data.get("user_id") if isinstance(data, dict) else None
    return str(next((one for one in (named, of_data, graph.created_by) if one), ""))


def _surplus(start: StartRun) -> list[Problem]:
    """Refuse what other languages take and this one has no use for."""
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
        attached = f"{name!r} is attached to an agent, and no node by itself"
        message = attached if name in graph.attached else f"there is no node {name!r}"
        problems.append(Problem("UNKNOWN_BREAKPOINT", message, f"breakpoints[{index}]", expected="a node's id"))
    return problems


def _start_node(graph: Graph, name: JSON) -> list[Problem]:
    if not isinstance(name, str) or name in graph.nodes:
        return []
    message = f"there is no node {name!r} to start from{hint_at(name, graph.nodes)}"
    return [Problem("UNKNOWN_NODE", message, "options.start_from_node", expected="the id of a node of the graph")]


def _due(scheduled: Scheduled, run_id: str | None) -> dict[str, JSON]:
    """The data of a CRON trigger."""
    return {
        "trigger_time": scheduled.due,
        "scheduled_time": scheduled.due,
        "execution_id": run_id,
        "timezone": scheduled.timezone,
        "trigger_message": f"Due at {scheduled.due} by schedule {scheduled.schedule}",
    }


def _trigger(graph: Graph, start: StartRun, options: Options, trigger: Trigger) -> dict[str, JSON]:
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
    """Return the shape of a graph."""
    return Outline(
        nodes=[OutlineNode(node.id, node.name, node.type, node.subtype) for node in graph.nodes.values()],
        edges=[
            OutlineEdge(wire.source, wire.target, None if wire.output_key == RESULT else wire.output_key)
            for wire in graph.wires
        ],
    )
