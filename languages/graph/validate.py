"""The checks of a graph beyond the shape of its parts: references, types, configurations, attachments, cycles.

They work on the plain value of the document, so their problems are reported together with those of its shape.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.approvals.member import MEMBER, find_faults
from callboard.languages.graph.coercion import UNFIT, coerce, unwrap
from callboard.languages.graph.expression_syntax import ExpressionInvalid
from callboard.languages.graph.expression_syntax import parse as parse_expression
from callboard.languages.graph.human.review import CONTROLS, review_of
from callboard.languages.graph.no_effect import NO_EFFECT, UNENFORCED, describe, find_ineffective
from callboard.languages.graph.node_specs import (
    ENGINE_FIELDS,
    NODE_TYPES,
    Field,
    NodeSpec,
    is_known,
    node_type,
    spec_of,
)
from callboard.languages.graph.templates import is_placeholder
from callboard.languages.graph.topology import Graph, GraphNode, cycle_of
from callboard.languages.problems import Location, Tree, hint_at, kind_of
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

CONDITIONS = ("condition_expression", "expression", "predicate_expression", "loop_condition", "wait_condition")
"""Configurations of FLOW nodes that are expressions."""

ATTACHABLE = ("TOOL", "MEMORY")
"""The types of nodes that can be attached to an agent."""

APPROVING = ("AI_AGENT", "TOOL")
"""Types of nodes whose calls of tools may need approval."""


def check_beyond_shape(tree: Tree) -> list[Problem]:
    """Return all errors and warnings, in no particular order; ``tree`` holds an object."""
    document: dict[str, Any] = tree.value
    nodes = [(("nodes", index), node) for index, node in _objects(document.get("nodes"))]
    by_id: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    for at, node in nodes:
        name = node.get("id")
        if isinstance(name, str) and name in by_id:
            message = f"another node has the id {name!r}"
            problems.append(tree.problem("DUPLICATE_NODE", message, (*at, "id"), expected="a unique id"))
        elif isinstance(name, str):
            by_id[name] = node
    for at, node in nodes:
        problems += _check_type(tree, at, node)
        problems += _check_attachments(tree, at, node, by_id)
    problems += _references(tree, document, by_id)
    return [*problems, *_cycle(tree, document, by_id)]


def _objects(value: JSON) -> Iterator[tuple[int, dict[str, Any]]]:
    if isinstance(value, list):
        yield from ((index, item) for index, item in enumerate(value) if isinstance(item, dict))


def _strings(value: JSON) -> Iterator[tuple[int, str]]:
    if isinstance(value, list):
        yield from ((index, item) for index, item in enumerate(value) if isinstance(item, str))


# -- types and configurations ------------------------------------------------------------------------------------------


def _check_type(tree: Tree, at: Location, node: dict[str, Any]) -> Iterator[Problem]:
    type, subtype = node.get("type"), node.get("subtype")
    if not isinstance(type, str) or not isinstance(subtype, str):
        return
    if type not in NODE_TYPES:
        yield _unknown_name(tree, (*at, "type"), f"unknown type {type!r}", type, NODE_TYPES)
    elif not is_known(type, subtype):
        known = (*node_type(type).subtypes, *node_type(type).unspecified)
        if type == "AI_AGENT":
            message = f"{subtype!r} is not a provider of models"
            yield tree.problem("UNKNOWN_PROVIDER", message, (*at, "subtype"), expected=f"one of {', '.join(known)}")
        else:
            yield _unknown_name(tree, (*at, "subtype"), f"{type} has no subtype {subtype!r}", subtype, known)
    yield from _check_configuration(tree, at, node, spec_of(type, subtype))


def _unknown_name(tree: Tree, at: Location, message: str, name: str, known: tuple[str, ...]) -> Problem:
    hint = hint_at(name, known)
    return tree.problem("UNKNOWN_TYPE", f"{message}{hint}; the node passes its input on", at, warning=True)


def _check_configuration(tree: Tree, at: Location, node: dict[str, Any], spec: NodeSpec | None) -> Iterator[Problem]:
    given = node.get("configurations")
    configurations: dict[str, Any] = given if isinstance(given, dict) else {}
    where = (*at, "configurations")
    invalid = f"invalid configuration for node {node.get('name')} ({node.get('type')}.{node.get('subtype')})"
    if spec is not None:
        for key in find_missing(spec, configurations):
            expected = spec.configurations[key].type
            yield tree.problem("MISSING_CONFIGURATION", f"{invalid}: {key} is required", where, expected=expected)
    if node.get("type") == "FLOW":
        yield from _conditions(tree, where, configurations, node.get("subtype") == "WAIT")
    if node.get("type") in APPROVING and configurations.get(MEMBER) is not None:
        for below, message, expected in find_faults(configurations[MEMBER], several=True):
            yield tree.problem("APPROVAL", f"{invalid}: {message}", (*where, MEMBER, *below), expected=expected)
    for key, value in configurations.items():
        field = find_field(spec, key)
        if field is not None and coerce(unwrap(value, field.type), field.type) is UNFIT:
            message = f"{invalid}: {key} is {kind_of(unwrap(value, field.type))}, not a value of type {field.type}"
            yield tree.problem("BAD_CONFIGURATION", message, (*where, key), expected=field.type)
    found = [one for one in find_ineffective(spec, str(node.get("type")), configurations) if not one.refused]
    if found:
        message = f"node {node.get('name')} ({node.get('type')}.{node.get('subtype')}): {describe(found)}"
        yield tree.problem(NO_EFFECT, message, (*where, found[0].name.partition(".")[0]), warning=True)


def find_objections(tree: Tree, graph: Graph) -> Iterator[Problem]:
    """Yield what refuses a new start of a graph: controls that nothing enforces, and reviews that cannot be held.

    Runs that were started before continue: they are decided by the rules of their time.
    """
    for index, written in _objects(tree.value.get("nodes")):
        node = graph.nodes.get(written["id"]) or graph.attached[written["id"]]
        where = ("nodes", index, "configurations")
        for one in find_ineffective(node.spec, node.type, node.given):
            if one.refused:
                advice = f"; {one.advice}" if one.advice else ""
                message = f"node {node.name}: {one.written} is not implemented, so nothing would enforce it{advice}"
                place = (*where, one.name.partition(".")[0])
                yield tree.problem(UNENFORCED, message, place, expected=f"a node without {one.written}")
        if (node.type, node.subtype) == ("TRIGGER", "WEBHOOK") and _checks_no_token(node):
            message = f"node {node.name}: auth_token is set, but `authentication` is none, so nothing would check it"
            yield tree.problem(
                UNENFORCED, message, (*where, "auth_token"), expected="another `authentication`, or none"
            )
        if node.type == "HUMAN_IN_THE_LOOP" and not _has_templates(node, CONTROLS):
            for fault in review_of(node)[1]:
                yield tree.problem("BAD_CONFIGURATION", f"node {node.name}: {fault}", where, expected="a review")


def _checks_no_token(node: GraphNode) -> bool:
    token = node.configurations.get("auth_token")
    return not is_placeholder(token) and node.setting("authentication") == "none"


def _has_templates(node: GraphNode, names: Iterable[str]) -> bool:
    """Whether some configurations contain templates, whose values only a run knows."""
    return any(b"{{" in canonical(node.configurations.get(name)) for name in names)


def _conditions(tree: Tree, at: Location, configurations: dict[str, Any], loosely: bool) -> Iterator[Problem]:
    """Check the conditions of a node. Those of a WAIT are checked ``loosely``: a condition in words never holds."""
    for key in CONDITIONS:
        written = unwrap(configurations.get(key))
        if isinstance(written, str) and written.strip():
            try:
                parse_expression(written)
            except ExpressionInvalid as invalid:
                yield tree.problem("EXPRESSION", str(invalid), (*at, key), expected="an expression", warning=loosely)


def find_missing(spec: NodeSpec, configurations: dict[str, Any]) -> list[str]:
    """Return the required configurations that are missing; an empty value is not missing."""
    if any(key in configurations for key in node_type(spec.type).instead):
        return []
    return [
        key
        for key, field in spec.configurations.items()
        if field.required and not field.granted and not any(name in configurations for name in (key, *field.instead))
    ]


def find_field(spec: NodeSpec | None, key: str) -> Field | None:
    """Return the declaration of a configuration; None if nothing declares it."""
    own = spec.configurations.get(key) if spec is not None else None
    return own or ENGINE_FIELDS.get(key)


def coerce_configurations(spec: NodeSpec | None, configurations: dict[str, JSON]) -> dict[str, JSON]:
    """Return a node's configurations, which were checked before, with coerced values."""
    found: dict[str, JSON] = {}
    for key, value in configurations.items():
        field = find_field(spec, key)
        found[key] = coerce(unwrap(value, field.type), field.type) if field is not None else unwrap(value)
    return found


# -- references --------------------------------------------------------------------------------------------------------


def _check_attachments(
    tree: Tree, at: Location, node: dict[str, Any], by_id: dict[str, dict[str, Any]]
) -> Iterator[Problem]:
    names = list(_strings(node.get("attached_nodes")))
    if names and node.get("type") != "AI_AGENT":
        message = f"a node of type {node.get('type')} has no attached nodes"
        yield tree.problem("ATTACHMENT", message, (*at, "attached_nodes"), expected="an AI_AGENT, or none attached")
        return
    for index, name in names:
        where = (*at, "attached_nodes", index)
        if name not in by_id:
            yield _unknown_node(tree, where, name, by_id)
        elif by_id[name].get("type") not in ATTACHABLE:
            message = f"{name!r} is of type {by_id[name].get('type')} and cannot be attached"
            yield tree.problem("ATTACHMENT", message, where, expected=" or ".join(ATTACHABLE))


def _references(tree: Tree, document: dict[str, Any], by_id: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    for index, connection in _objects(document.get("connections")):
        for end in ("from_node", "to_node"):
            name = connection.get(end)
            if isinstance(name, str) and name not in by_id:
                yield _unknown_node(tree, ("connections", index, end), name, by_id)
    for index, name in _strings(document.get("triggers")):
        where = ("triggers", index)
        if name not in by_id:
            yield _unknown_node(tree, where, name, by_id)
        elif (type := by_id[name].get("type")) != "TRIGGER":
            yield tree.problem("NOT_A_TRIGGER", f"{name!r} is of type {type}", where, expected="a node of type TRIGGER")


def _unknown_node(tree: Tree, at: Location, name: str, by_id: dict[str, Any]) -> Problem:
    message = f"unknown node {name!r}{hint_at(name, by_id)}"
    return tree.problem("UNKNOWN_NODE", message, at, expected="the id of a node")


def _cycle(tree: Tree, document: dict[str, Any], by_id: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    apart = attached_ids(list(by_id.values()))
    successors: dict[str, list[str]] = {name: [] for name in by_id if name not in apart}
    for _index, connection in _objects(document.get("connections")):
        source, target = connection.get("from_node"), connection.get("to_node")
        if isinstance(source, str) and isinstance(target, str) and {source, target} <= successors.keys():
            successors[source].append(target)
    if cycle := cycle_of(successors):
        message = f"the graph contains a cycle: {' → '.join(cycle)}"
        yield tree.problem("CYCLE", message, ("connections",), expected="a graph without cycles; LOOP repeats")


def attached_ids(nodes: list[dict[str, Any]]) -> set[str]:
    """Return the ids of the nodes that are attached to an agent."""
    return {
        name
        for node in nodes
        if node.get("type") == "AI_AGENT"
        for _index, name in _strings(node.get("attached_nodes"))
    }
