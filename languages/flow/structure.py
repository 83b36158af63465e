"""The check of a flow without running it: finds all problems of a document and its flow objects.

Source: page *Flow object*. Invalid parts are errors. Parts that are legal but surely mistakes, or that fail when they
are reached, are warnings. `build` can build every definition without errors.
"""

from collections.abc import Mapping
from functools import partial

from callboard.bus.events import Problem
from callboard.languages.cel.template_strings import expression_body, expressions_in
from callboard.languages.flow.actions import route, step
from callboard.languages.flow.arguments import argument_warnings
from callboard.languages.flow.children import child_warnings
from callboard.languages.flow.expressions import expression_problems
from callboard.languages.flow.inspection import (
    STRUCTURAL_EXPRESSION,
    Check,
    Findings,
    FlowNode,
    Here,
    comment,
    fields,
)
from callboard.languages.flow.name_scopes import scoping_problems
from callboard.languages.flow.near_misses import near_misses
from callboard.languages.flow.targets import stack
from callboard.languages.flow.validation import Schema, schema_faults
from callboard.languages.problems import Tree, kind_of
from callboard.languages.provider_contracts import Contract
from callboard.lib.json_types import JSON

FLOW_SCHEMA = "https://mwl.dev/v0.1/flow/schema.json"
"""The ``$schema`` of a flow document, which is the version of the language."""

_ANNOTATIONS = ("$comment", "description", "examples", "title")
"""Keywords of a JSON Schema whose values are only for people."""


def problems(tree: Tree, contracts: Mapping[str, Contract]) -> list[Problem]:
    """Return all problems of a definition, errors and warnings, in the order of the text.

    ``contracts`` are the known providers by URI, including those of the specification. Providers of other namespaces
    are not reported as unknown, because a worker may have them.
    """
    findings = Findings(tree, contracts)
    findings.nodes.append(FlowNode((), None, tree.value))
    for node in findings.nodes:  # It grows as flows are found inside flows.
        _flow(Here(findings, node, node.location), node.value)
    scoping_problems(findings)
    expression_problems(findings)
    near_misses(findings)
    argument_warnings(findings)
    child_warnings(findings)
    return sorted(findings.problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _flow(here: Here, value: JSON) -> None:
    root = not here.location
    known: dict[str, Check] = {
        "comment": comment,
        "entrypoint": partial(route, step=None),
        "flows": _flows,
        "middleware": partial(stack, level="flow"),
        "parameters": _parameters,
        "steps": _steps,
    }
    if root:
        known = {"$schema": _version, **known}
    elif isinstance(value, dict) and "$schema" in value:
        here.at("$schema").error("SCHEMA", "only the document has a version, not a flow inside it")
        known["$schema"] = lambda _here, _value: None
    here.node.parameters = Schema(None) if isinstance(value, dict) and "parameters" not in value else None
    fields(here, value, known, required=("$schema", "entrypoint", "steps") if root else ("entrypoint", "steps"))


def _version(here: Here, value: JSON) -> None:
    if value != FLOW_SCHEMA:
        shown = repr(value) if isinstance(value, str) else kind_of(value)
        here.error("VERSION", f"{shown} is not a known version of the language", FLOW_SCHEMA)


def _identifier(here: Here, name: str) -> None:
    if expression_body(name) is not None:
        here.error("STRUCTURAL_EXPRESSION", STRUCTURAL_EXPRESSION, "a name")


def _flows(here: Here, value: JSON) -> None:
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: flows by their names")
        return
    for name, flow in value.items():
        _identifier(here.at(name), name)
        node = FlowNode((*here.location, name), here.node, flow)
        here.node.named[name] = node
        here.findings.nodes.append(node)


def _parameters(here: Here, value: JSON) -> None:
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: a JSON Schema")
        return
    if value.get("type") != "object":
        here.at("type").error("PARAMETERS", "the schema of parameters describes an object", '"type": "object"')
    else:
        faults = schema_faults(value)
        here.node.parameters = None if faults else Schema(value)
        for below, fault in faults:
            here.at(*below).error("PARAMETERS", f"the schema is invalid: {fault}")
    for below, _body in expressions_in(value):
        if not any(step in _ANNOTATIONS for step in below):
            here.at(*below).error("STRUCTURAL_EXPRESSION", STRUCTURAL_EXPRESSION)


def _steps(here: Here, value: JSON) -> None:
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: steps by their names")
        return
    if not value:
        here.error("SCHEMA", "must not be empty", "at least one step")
    for name, one in value.items():
        _identifier(here.at(name), name)
        here.node.routes.setdefault(name, [])
        step(here.at(name), name, one)
