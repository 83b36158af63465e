"""The check of a flow without running it: finds all problems of a document and its flow objects.

Source: page *Flow object*. Invalid parts are errors. Parts that are legal but surely mistakes, or that fail when they
are reached, are warnings. `build` can build every definition without errors.

Literal arguments that do not fit the parameters of a provider or flow are warnings. If arguments contain expressions,
only violations that do not depend on the expressions are reported, such as missing or unknown names.

Invalid syntax of an expression is an error. An unknown name fails only if it is evaluated, so it is a warning; if the
expression tests the name with ``has``, it gets no warning.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.cel import program
from callboard.languages.cel.errors import CelSyntaxError
from callboard.languages.cel.syntax import Comprehension, Has, Name, Node, Select, children
from callboard.languages.cel.template_strings import expression_body, expressions_in
from callboard.languages.flow.actions import check_route, check_step
from callboard.languages.flow.approvals import check_approvals, is_of_approval
from callboard.languages.flow.children import warn_of_child_definitions
from callboard.languages.flow.inspection import (
    STRUCTURAL_EXPRESSION,
    Check,
    Findings,
    FlowNode,
    Here,
    Site,
    WithBlock,
    check_comment,
    check_fields,
)
from callboard.languages.flow.name_scopes import check_names
from callboard.languages.flow.near_misses import warn_of_near_misses
from callboard.languages.flow.targets import check_stack
from callboard.languages.flow.validation import FlowViolation, Schema, find_schema_faults
from callboard.languages.problems import Location, Tree, hint_at, kind_of
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


_CONDITIONAL = frozenset({"if", "then", "else", "anyOf", "oneOf", "not", "dependentSchemas", "contains"})
"""Keywords whose result may depend on values that are not known yet."""

_OF_NAMES = ("required", "additionalProperties")
"""Keywords that look only at the names of members, which are never expressions."""


def warn_of_arguments(findings: Findings) -> None:
    """Warn of arguments that the schema of a contract, or of a flow in the document, refuses."""
    schemas: dict[tuple[str, str | None], Schema] = {}
    for found in findings.arguments:
        if not isinstance(found.value, dict):
            continue
        phase = found.contract.phases.get(found.phase or "") if found.contract else None
        schema = None if phase and phase.structural else _schema(found, schemas)
        violation = schema.find_violation(found.value) if schema else None
        for one in (violation, *violation.all) if violation else ():
            if _is_certain(one, found.value) and not is_of_approval(found, one.instance_path):
                _warn(findings, found, one)


def _warn(findings: Findings, found: WithBlock, violation: FlowViolation) -> None:
    what = found.contract.uri if found.contract else "the flow"
    when = f" at {found.phase}" if found.phase else ""
    message = f"the arguments do not fit the parameters of {what}{when}, so it fails where it is used: {violation}"
    findings.warn("ARGUMENTS", message, found.location)


def _is_certain(violation: FlowViolation, arguments: JSON) -> bool:
    """Return whether a violation is certain for all values of the expressions in the arguments."""
    if not any(True for _ in expressions_in(arguments)):
        return True
    keywords = violation.schema_path.split("/")
    if _CONDITIONAL.intersection(keywords):
        return False
    return keywords[-1] in _OF_NAMES or not any(True for _ in expressions_in(violation.value))


def _schema(found: WithBlock, schemas: dict[tuple[str, str | None], Schema]) -> Schema | None:
    """Return the schema for arguments; None if it is unknown or invalid."""
    if found.contract is None:
        node = found.node.resolve(found.flow) if isinstance(found.flow, str) else found.flow
        return node.parameters if node else None
    key = (found.contract.uri, found.phase)
    if key not in schemas:
        phase = found.contract.phases.get(found.phase) if found.phase else None
        declared = found.contract.parameters if found.phase is None else phase.parameters if phase else None
        schemas[key] = Schema(declared)
    return schemas[key]


TEXT_SHOWN_CHARS_MAX = 80
"""How many characters of an expression a problem shows."""


def check_expressions(findings: Findings) -> None:
    """Report the problems of all expressions that were found."""
    for site in findings.sites:
        for below, body in expressions_in(site.value):
            _check_expression(findings, site, (*site.location, *below), body)


def _check_expression(findings: Findings, site: Site, location: Location, body: str) -> None:
    try:
        compiled = program.compile(body)
    except CelSyntaxError as error:
        where = f"line {error.line}, column {error.column} of the expression"
        findings.error("EXPRESSION", f"{error.message}, at {where} {_shorten(body.strip())!r}", location, "CEL")
        return
    for root in sorted(compiled.roots - site.roots.keys()):
        hint = hint_at(root, site.roots)
        listed = f"one of {', '.join(sorted(site.roots))}"
        findings.warn("UNKNOWN_BINDING", f"there is no {root!r} to read here{hint}", location, listed)
    for name in sorted(compiled.unknown_functions):
        findings.warn("UNKNOWN_FUNCTION", f"there is no function {name!r}", location)
    tree = compiled.tree
    guarded = set(_find_members(tree, Has, frozenset()))
    for root, member in dict.fromkeys(_find_members(tree, Select, frozenset())):
        if (root, member) not in guarded:
            _check_member(findings, site, location, root, member)


def _check_member(findings: Findings, site: Site, location: Location, root: str, member: str) -> None:
    if root == "vars":
        declared = _declared_variables(site.node)
        if declared is not None and member not in declared and member not in site.node.assigned:
            hint = hint_at(member, {*declared, *site.node.assigned})
            message = f"nothing in this flow declares or assigns the variable {member!r}{hint}"
            findings.warn("UNKNOWN_VARIABLE", message, location)
        return
    members = site.roots.get(root)
    if members is not None and member not in members:
        message = f"{root!r} has no member {member!r} here"
        findings.warn("UNKNOWN_BINDING", message, location, f"one of {', '.join(sorted(members))}")


def _declared_variables(node: FlowNode) -> Mapping[str, Any] | None:
    """Return the variables that callers of a flow may pass, or None if they may pass any."""
    declared: Any = node.value.get("parameters", {}) if isinstance(node.value, dict) else {}
    if not isinstance(declared, dict) or declared.get("additionalProperties", False) is not False:
        return None
    properties: Any = declared.get("properties", {})
    if not isinstance(properties, Mapping) or "patternProperties" in declared:
        return None
    return properties


def _find_members(tree: Node, kind: type[Select] | type[Has], bound: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the members of roots, one level deep, that an expression selects or tests with ``has``."""
    if isinstance(tree, Select | Has) and isinstance(tree.operand, Name):
        if isinstance(tree, kind) and tree.operand.name not in bound:
            yield tree.operand.name, tree.field
        return
    if isinstance(tree, Comprehension):
        yield from _find_members(tree.source, kind, bound)
        inner = bound | {tree.variable}
        for part in (tree.condition, tree.body):
            if part is not None:
                yield from _find_members(part, kind, inner)
        return
    for child in children(tree):
        yield from _find_members(child, kind, bound)


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN_CHARS_MAX else text[: TEXT_SHOWN_CHARS_MAX - 1] + "…"
