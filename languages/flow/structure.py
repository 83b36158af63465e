"""The check of a flow without running it: finds all problems of a document and its flow objects.

Source: page *Flow object*. Invalid parts are errors. Parts that are legal but surely mistakes, or that fail when they
are reached, are warnings. `build` can build every definition without errors.
"""

from collections.abc import Mapping
from functools import partial

from callboard.bus.events import Problem
from callboard.languages.cel.template_strings import expression_body, expressions_in
from callboard.languages.flow.actions import check_route, check_step
from callboard.languages.flow.approvals import check_approvals
from callboard.languages.flow.arguments import warn_of_arguments
from callboard.languages.flow.children import warn_of_child_definitions
from callboard.languages.flow.expressions import check_expressions
from callboard.languages.flow.inspection import (
    STRUCTURAL_EXPRESSION,
    Check,
    Findings,
    FlowNode,
    Here,
    check_comment,
    check_fields,
)
from callboard.languages.flow.name_scopes import check_names
from callboard.languages.flow.near_misses import warn_of_near_misses
from callboard.languages.flow.targets import check_stack
from callboard.languages.flow.validation import Schema, find_schema_faults
from callboard.languages.problems import Tree, kind_of
from callboard.languages.provider_contracts import Contract
from callboard.lib.json_types import JSON

FLOW_SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"
"""The ``$schema`` of a flow document, which is the version of the language."""

_ANNOTATIONS = ("$comment", "description", "examples", "title")
"""Keywords of a JSON Schema whose values are only for people."""


def find_problems(tree: Tree, contracts: Mapping[str, Contract]) -> list[Problem]:
    """Return all problems of a definition, errors and warnings, in the order of the text.

    ``contracts`` are the known providers by URI, including those of the specification. Providers of other namespaces
    are not reported as unknown, because a worker may have them.
    """
    findings = Findings(tree, contracts)
    findings.nodes.append(FlowNode((), None, tree.value))
    for node in findings.nodes:  # It grows as flows are found inside flows.
        _check_flow(Here(findings, node, node.location), node.value)
    check_names(findings)
    check_expressions(findings)
    warn_of_near_misses(findings)
    warn_of_arguments(findings)
    warn_of_child_definitions(findings)
    check_approvals(findings)
    return sorted(findings.problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _check_flow(here: Here, value: JSON) -> None:
    root = not here.location
    known: dict[str, Check] = {
        "comment": check_comment,
        "entrypoint": partial(check_route, step=None),
        "flows": _check_flows,
        "middleware": partial(check_stack, level="flow"),
        "parameters": _check_parameters,
        "steps": _check_steps,
    }
    if root:
        known = {"$schema": _check_version, **known}
    elif isinstance(value, dict) and "$schema" in value:
        here.at("$schema").error("SCHEMA", "only the document has a version, not a flow inside it")
        known["$schema"] = lambda _here, _value: None
    here.node.parameters = Schema(None) if isinstance(value, dict) and "parameters" not in value else None
    check_fields(here, value, known, required=("$schema", "entrypoint", "steps") if root else ("entrypoint", "steps"))


def _check_version(here: Here, value: JSON) -> None:
    if value != FLOW_SCHEMA:
        shown = repr(value) if isinstance(value, str) else kind_of(value)
        here.error("VERSION", f"{shown} is not a known version of the language", FLOW_SCHEMA)


def _check_identifier(here: Here, name: str) -> None:
    if expression_body(name) is not None:
        here.error("STRUCTURAL_EXPRESSION", STRUCTURAL_EXPRESSION, "a name")


def _check_flows(here: Here, value: JSON) -> None:
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: flows by their names")
        return
    for name, flow in value.items():
        _check_identifier(here.at(name), name)
        node = FlowNode((*here.location, name), here.node, flow)
        here.node.named[name] = node
        here.findings.nodes.append(node)


def _check_parameters(here: Here, value: JSON) -> None:
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: a JSON Schema")
        return
    if value.get("type") != "object":
        here.at("type").error("PARAMETERS", "the schema of parameters describes an object", '"type": "object"')
    else:
        faults = find_schema_faults(value)
        here.node.parameters = None if faults else Schema(value)
        for below, fault in faults:
            here.at(*below).error("PARAMETERS", f"the schema is invalid: {fault}")
    for below, _body in expressions_in(value):
        if not any(step in _ANNOTATIONS for step in below):
            here.at(*below).error("STRUCTURAL_EXPRESSION", STRUCTURAL_EXPRESSION)


def _check_steps(here: Here, value: JSON) -> None:
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: steps by their names")
        return
    if not value:
        here.error("SCHEMA", "must not be empty", "at least one step")
    for name, one in value.items():
        _check_identifier(here.at(name), name)
        here.node.routes.setdefault(name, [])
        check_step(here.at(name), name, one)
