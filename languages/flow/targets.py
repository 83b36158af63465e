"""The checks of call objects, provider URIs and middleware stacks.

Source: pages *Call interface*, *Middleware mechanics* and *Providers*.
"""

import re
from functools import partial
from typing import Any

from callboard.languages.flow.bindings import Roots, at_arm, at_call, at_phase
from callboard.languages.flow.clauses import check_failure_code, check_failure_type, check_policies, check_retryable
from callboard.languages.flow.inspection import (
    Check,
    FlowNode,
    Here,
    WithBlock,
    check_assign,
    check_comment,
    check_each,
    check_fields,
    check_literal_string,
    check_object,
    check_text,
    check_value,
    of_type,
)
from callboard.languages.flow.specified_providers import FINALLY, LOOP, RETRY
from callboard.languages.problems import hint_at, kind_of
from callboard.languages.provider_contracts import CALL, MIDDLEWARE, PHASES, Contract
from callboard.lib.json_types import JSON

OWN_NAMESPACES = ("mwl", "callboard")
"""Namespaces whose providers are all known; only workers know the providers of others."""

EXAMPLES = "example"
"""The namespace for examples in documentation, in which no provider exists."""

_URI = re.compile(r"mwl:(?P<type>[^/]*)/(?P<namespace>[A-Za-z0-9._-]+)(?:/[A-Za-z0-9._-]+)+")

_WHAT = {CALL: "call provider", MIDDLEWARE: "middleware"}


# -- calls ------------------------------------------------------------------------------------------------------------


def check_call(here: Here, value: JSON, *, gathered: bool = False) -> None:
    """Check a call object; ``here.roots`` are the roots at its position."""
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: a call")
        return
    chosen = [name for name in ("provider", "flow") if name in value]
    if len(chosen) != 1:
        wrong = "names both a provider and a flow" if chosen else "names nothing to run"
        here.error("CALL_TARGET", wrong, "either provider or flow")
    target = chosen[0] if len(chosen) == 1 else None
    own = here.reading(at_call(here.roots, gathered=gathered))
    arms = at_arm(own.roots, target)
    known: dict[str, Check] = {
        "provider": partial(_check_provider, kind=CALL),
        "flow": _check_flow,
        "input": check_value,
        "with": check_object,
        "onSuccess": _check_arm(arms, {"value": check_value, "assign": check_assign}),
        "onFailure": _check_arm(arms, {"assign": check_assign}),
        "comment": check_comment,
    }
    check_fields(own, value, known)
    _record_call_arguments(here, value)


def _check_arm(roots: Roots, known: dict[str, Check]) -> Check:
    return lambda here, value: check_fields(here.reading(roots), value, known)


def _check_flow(here: Here, value: JSON) -> None:
    if isinstance(value, dict):
        node = FlowNode(here.location, here.node, value)
        here.findings.nodes.append(node)
        here.node.targets.append((here.location, node))
    elif not isinstance(value, str):
        here.error("SCHEMA", f"is {kind_of(value)}", "the name of a flow, or a flow object")
    elif check_literal_string(here, value):
        here.node.targets.append((here.location, value))


def _record_call_arguments(here: Here, value: dict[str, Any]) -> None:
    uri, flow = value.get("provider"), value.get("flow")
    location = (*here.location, "with") if "with" in value else here.location
    given = value.get("with", {})
    if isinstance(flow, str | dict) and uri is None:
        target = flow if isinstance(flow, str) else _find_inline_node(here)
        here.findings.arguments.append(WithBlock(location, given, here.node, None, None, target))
    elif isinstance(uri, str) and uri.startswith(CALL) and (contract := here.findings.contracts.get(uri)):
        here.findings.arguments.append(WithBlock(location, given, here.node, contract))


def _find_inline_node(here: Here) -> FlowNode | None:
    """Return the node of the flow inside a call, which was just added."""
    for location, target in reversed(here.node.targets):
        if location == (*here.location, "flow") and isinstance(target, FlowNode):
            return target
    return None


# -- provider URIs ----------------------------------------------------------------------------------------------------


def provider_type(uri: JSON) -> str | None:
    """Return with which of the prefixes `CALL` and `MIDDLEWARE` a URI begins; None if with neither."""
    return next((kind for kind in _WHAT if isinstance(uri, str) and uri.startswith(kind)), None)


def namespace_of(uri: JSON) -> str | None:
    """Return the namespace of a provider's URI, or None if a value is not the URI of a provider."""
    parts = _URI.fullmatch(uri) if isinstance(uri, str) and provider_type(uri) else None
    return None if parts is None or {".", ".."} & set(parts.group().split("/")) else parts["namespace"]


def _check_provider(here: Here, value: JSON, *, kind: str) -> None:
    if not check_literal_string(here, value):
        return
    uri = str(value)
    wanted = f"{kind}<namespace>/<name>"
    namespace = namespace_of(uri)
    if namespace is None:
        here.error("PROVIDER_URI", f"{uri!r} is not the URI of a provider", wanted)
    elif not uri.startswith(kind):
        message = f"{uri!r} is a {_WHAT[provider_type(uri) or kind]}, not a {_WHAT[kind]}"
        here.error("PROVIDER_TYPE", message, wanted)
    elif uri not in here.findings.contracts:
        _report_unknown(here, uri, namespace, kind)


def _report_unknown(here: Here, uri: str, namespace: str, kind: str) -> None:
    if namespace in OWN_NAMESPACES:
        known = sorted(known for known in here.findings.contracts if known.startswith(kind))
        hint = hint_at(uri, known)
        here.error("UNKNOWN_PROVIDER", f"there is no {_WHAT[kind]} {uri!r}{hint}", f"one of {', '.join(known)}")
    elif namespace == EXAMPLES:
        message = f"{uri!r} is an example from documentation; no worker has it"
        here.warn("EXAMPLE_PROVIDER", message)


# -- middleware -------------------------------------------------------------------------------------------------------


def check_stack(here: Here, value: JSON, *, level: str) -> None:
    """Check a middleware stack; ``level`` is step or flow."""
    check_each(partial(_check_entry, level=level))(here, value)
    again = [
        index
        for index, entry in enumerate(value if isinstance(value, list) else [])
        if isinstance(entry, dict) and entry.get("provider") in (RETRY, LOOP)
    ]
    for inner in again[1:]:
        message = "repeats its inner operation inside another middleware that does so too, so their runs multiply"
        here.at(inner).warn("WORK_AMPLIFICATION", message)


def _check_entry(here: Here, value: JSON, *, level: str) -> None:
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object: a middleware entry")
        return
    uri = value.get("provider")
    contract = here.findings.contracts.get(uri) if isinstance(uri, str) else None
    known: dict[str, Check] = {"provider": partial(_check_provider, kind=MIDDLEWARE), "comment": check_comment}
    for phase in PHASES:
        known[phase] = partial(_check_phase, phase=phase, contract=contract, level=level)
    check_fields(here, value, known, required=("provider",))
    if contract is not None and not contract.is_call:
        _check_use(here, value, contract, level)


def _check_use(here: Here, value: dict[str, Any], contract: Contract, level: str) -> None:
    """Check an entry as a whole against its contract."""
    if contract.attachment and level not in contract.attachment:
        message = f"{contract.uri!r} wraps {' or '.join(contract.attachment)}s only, and this is a {level}'s stack"
        here.error("ATTACHMENT", message)
    if contract.uri == LOOP:
        _check_loop(here, value.get("onSuccess"))
    if contract.uri == RETRY:
        check_policies(here.at("onEntry", "with", "policies"), _value_at(value, "onEntry", "with", "policies"))
    if contract.uri == FINALLY and not isinstance(_value_at(value, "onAlways", "with"), dict):
        here.at("onAlways", "with").error("SCHEMA", "a Finally must write out what it calls", "with.call")
    for phase in PHASES:
        block = value.get(phase, {})
        if isinstance(block, dict) and block.get("when") is not False:
            written = "with" in block
            place = (*here.location, phase, "with") if written else here.location
            given = block.get("with", {})
            here.findings.arguments.append(WithBlock(place, given, here.node, contract, phase))


def _value_at(value: JSON, *steps: str) -> JSON:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _check_loop(here: Here, block: JSON) -> None:
    if block is None or (isinstance(block, dict) and "when" not in block):
        here.at("onSuccess", "when").error("LOOP_WITHOUT_END", "is required: nothing else ends a Loop")
    elif isinstance(block, dict) and block["when"] is True:
        here.at("onSuccess", "when").warn("LOOP_WITHOUT_END", "is always true, so that only a failure ends the Loop")


ENVELOPE_FIELDS: dict[str, Check] = {
    "type": check_failure_type,
    "code": check_failure_code,
    "message": check_text,
    "details": check_value,
    "retryable": check_retryable,
    "previous": of_type(dict, type(None), expected="a failure, null, or an expression that gives one"),
}
"""The checks of the fields of a failure that a Raise or an ``onFailure`` block constructs."""

_SHAPES: dict[str, dict[str, Check]] = {
    "onEntry": {"output": check_value},
    "onSuccess": {"value": check_value},
    "onFailure": ENVELOPE_FIELDS,
    "onAlways": {},
}


def _check_phase(here: Here, value: JSON, *, phase: str, contract: Contract | None, level: str) -> None:
    inner = here.reading(at_phase(here.roots, phase))
    arguments: Check = check_object
    if contract is not None and phase in contract.phases and contract.phases[phase].structural:
        arguments = partial(_check_structural_arguments, contract=contract, phase=phase, level=level)
    known: dict[str, Check] = {
        "when": of_type(bool, expected="true, false, or an expression that gives one"),
        "with": arguments,
        "assign": check_assign,
        **_SHAPES[phase],
    }
    check_fields(inner, value, known)


def _check_structural_arguments(here: Here, value: JSON, *, contract: Contract, phase: str, level: str) -> None:
    """Check a ``with`` in which some members are never evaluated; those of a Finally are a call and its stack."""
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object")
    elif contract.uri == FINALLY:
        call_here = partial(_check_cleanup_stack, roots=here.roots)
        check_fields(here, value, {"call": check_call, "middleware": call_here}, required=("call",))
    else:
        taken = contract.phases[phase].structural
        for name, member in value.items():
            if name not in taken:
                check_value(here.at(name), member)


def _check_cleanup_stack(here: Here, value: JSON, *, roots: Roots) -> None:
    """Check the stack around a Finally's call, which wraps the call as a step's stack does."""
    check_stack(here.reading(roots), value, level="step")
