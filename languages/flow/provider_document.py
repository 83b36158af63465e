"""Provider documents, in which users define providers: their check, and the written form of contracts.

Source: page *Providers*, section *The provider definition document*. `contract_of` can read every document without
errors.
"""

import re
from collections.abc import Collection
from functools import partial
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.flow.inspection import Check, Findings, FlowNode, Here, check_comment, check_each, check_fields
from callboard.languages.flow.shipped_providers import CONTRACTS, FAILURES
from callboard.languages.flow.specified_providers import SPECIFIED
from callboard.languages.flow.structure import find_problems
from callboard.languages.flow.targets import EXAMPLES, OWN_NAMESPACES, namespace_of, provider_type
from callboard.languages.flow.validation import find_schema_faults
from callboard.languages.problems import Tree, hint_at, kind_of
from callboard.languages.provider_contracts import CALL, MIDDLEWARE, PHASES, Contract, PhaseContract, ProviderContracts
from callboard.lib.json_types import JSON

PROVIDER_SCHEMA = "https://mwl.dev/v0.1/provider/schema.json"
"""The ``$schema`` of a provider document."""

RESERVED_NAMESPACES = (*OWN_NAMESPACES, EXAMPLES)
"""Namespaces in which users must not define providers."""

_KINDS = ("side-effect", "control", "transform")
_LEVELS = ("step", "flow")
_UNIVERSAL = ("enteredAt", "exitedAt")
_CODE_PREFIX = re.compile(r"[A-Z][A-Za-z0-9]*")
_CLOSED = re.compile(r"Provider\.(Call|Middleware)\.[A-Za-z0-9]+(\.[A-Za-z0-9]+)+")
_OPEN = re.compile(r"\*|Provider\.(Call|Middleware)\.[A-Za-z0-9]+(\.[A-Za-z0-9]+)*\.\*")


def find_provider_problems(document: Any, *, reserved: Collection[str] = RESERVED_NAMESPACES) -> list[Problem]:
    """Return everything that is wrong with a provider document, a JSON value.

    ``reserved`` are namespaces that the document must not use; Callboard's own documents are checked without any.
    """
    findings = Findings(Tree(document), {})
    here = Here(findings, FlowNode(()), ())
    if not isinstance(document, dict):
        here.error("SCHEMA", f"is {kind_of(document)}", "an object: a provider document")
        return findings.problems
    middleware = _is_middleware(document)
    known: dict[str, Check] = {
        "$schema": _check_version,
        "uri": partial(_check_uri, reserved=reserved),
        "codePrefix": partial(_check_pattern, pattern=_CODE_PREFIX, expected="a name in PascalCase"),
        "description": check_comment,
        "failureCatalog": _check_catalog,
        "metadata": partial(_check_metadata, middleware=middleware),
    }
    own: dict[str, Check] = (
        {"attachment": _check_attachment, "phases": _check_phases}
        if middleware
        else {"parameters": _check_object_schema}
    )
    required = ("$schema", "uri", "codePrefix", "description", *own, "failureCatalog")
    check_fields(here, document, {**known, **own}, required)
    _warn_of_foreign_codes(here, document, middleware)
    return findings.problems


def _is_middleware(document: dict[str, Any]) -> bool:
    """Return whether a document describes a middleware, by its URI, or by its fields if the URI is invalid."""
    found = provider_type(document.get("uri"))
    return found == MIDDLEWARE if found else "phases" in document or "attachment" in document


def _check_version(here: Here, value: JSON) -> None:
    if value != PROVIDER_SCHEMA:
        shown = repr(value) if isinstance(value, str) else kind_of(value)
        here.error("VERSION", f"{shown} is not a known version of the language", PROVIDER_SCHEMA)


def _check_uri(here: Here, value: JSON, *, reserved: Collection[str]) -> None:
    namespace = namespace_of(value)
    if namespace is None:
        shown = repr(value) if isinstance(value, str) else kind_of(value)
        expected = f"{CALL}<namespace>/<name> or {MIDDLEWARE}<namespace>/<name>"
        here.error("PROVIDER_URI", f"{shown} is not the URI of a provider", expected)
    elif namespace in reserved:
        here.error("RESERVED_NAMESPACE", f"the namespace {namespace!r} is reserved", "a namespace of your own")


def _check_pattern(here: Here, value: JSON, *, pattern: re.Pattern[str], expected: str) -> None:
    if not isinstance(value, str):
        here.error("SCHEMA", f"is {kind_of(value)}", expected)
    elif not pattern.fullmatch(value):
        here.error("SCHEMA", f"{value!r} is not allowed", expected)


def _check_object_schema(here: Here, value: JSON) -> None:
    if not isinstance(value, dict):
        here.error("SCHEMA", f"is {kind_of(value)}", "an object: a JSON Schema")
    elif value.get("type") != "object":
        here.at("type").error("PARAMETERS", "the schema must describe an object", '"type": "object"')
    else:
        for below, fault in find_schema_faults(value):
            here.at(*below).error("PARAMETERS", f"the schema is invalid: {fault}")


def _check_metadata(here: Here, value: JSON, *, middleware: bool) -> None:
    _check_object_schema(here, value)
    properties = value.get("properties") if isinstance(value, dict) else None
    for name in _UNIVERSAL if middleware and isinstance(properties, dict) else ():
        if isinstance(properties, dict) and name in properties:
            here.at("properties", name).error("RESERVED_MEMBER", f"{name!r} is reserved for the engine", "another name")


def _check_catalog(here: Here, value: JSON) -> None:
    closed = partial(_check_pattern, pattern=_CLOSED, expected="a code: Provider.<Kind>.<codePrefix>.<Code>")
    opened = partial(_check_pattern, pattern=_OPEN, expected="a prefix that ends in .*, or * alone")
    check_fields(here, value, {"closed": check_each(closed), "open": check_each(opened)}, required=("closed", "open"))


def _warn_of_foreign_codes(here: Here, document: dict[str, Any], middleware: bool) -> None:
    """Warn of codes whose prefix is that of another provider."""
    catalog, prefix = document.get("failureCatalog"), document.get("codePrefix")
    if not isinstance(catalog, dict) or not isinstance(prefix, str):
        return
    own = f"Provider.{'Middleware' if middleware else 'Call'}.{prefix}."
    for name in ("closed", "open"):
        codes = catalog.get(name)
        for index, code in enumerate(codes if isinstance(codes, list) else []):
            if isinstance(code, str) and code != "*" and not code.startswith(own):
                place = here.at("failureCatalog", name, index)
                place.warn("FOREIGN_CODE", f"{code!r} is not a code of this provider", f"{own}…")


# -- middleware -------------------------------------------------------------------------------------------------------


def _check_attachment(here: Here, value: JSON) -> None:
    def level(here: Here, value: JSON) -> None:
        if value not in _LEVELS:
            here.error("SCHEMA", f"{value!r} is not allowed", " or ".join(_LEVELS))

    check_each(level, filled=True)(here, value)
    if isinstance(value, list) and any(value.count(level) > 1 for level in _LEVELS):
        here.error("SCHEMA", "names a level twice", "each level once")


def _check_phases(here: Here, value: JSON) -> None:
    found = check_fields(here, value, dict.fromkeys(PHASES, _check_phase))
    if found == {}:
        here.error("SCHEMA", "must not be empty", f"at least one of {', '.join(PHASES)}")


def _check_phase(here: Here, value: JSON) -> None:
    known: dict[str, Check] = {
        "action": _check_action,
        "parameters": _check_object_schema,
        "structural": check_each(check_comment),
    }
    found = check_fields(here, value, known, required=("action",))
    structural, parameters = (found or {}).get("structural"), (found or {}).get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    declared = list(properties) if isinstance(properties, dict) else []
    for index, name in enumerate(structural if isinstance(structural, list) else []):
        if isinstance(name, str) and name not in declared:
            hint = hint_at(name, declared)
            here.at("structural", index).warn("UNKNOWN_PARAMETER", f"there is no parameter {name!r}{hint}")


def _check_action(here: Here, value: JSON) -> None:
    def kind(here: Here, value: JSON) -> None:
        if value not in _KINDS:
            here.error("SCHEMA", f"{value!r} is not allowed", " or ".join(_KINDS))

    known: dict[str, Check] = {"kind": kind, "description": check_comment, "acceptance": check_comment}
    check_fields(here, value, known, required=("kind", "description"))


# -- contracts as documents --------------------------------------------------------------------------------------------


def document_of(contract: Contract) -> dict[str, Any]:
    """Return a contract as a provider document (page *Providers*, The provider definition document)."""
    document: dict[str, Any] = {
        "$schema": PROVIDER_SCHEMA,
        "uri": contract.uri,
        "codePrefix": contract.code_prefix,
        "description": contract.description,
    }
    if contract.attachment:
        document["attachment"] = list(contract.attachment)
    if contract.phases:
        document["phases"] = {name: _write_phase(phase) for name, phase in contract.phases.items()}
    if contract.parameters is not None:
        document["parameters"] = contract.parameters
    if contract.metadata is not None:
        document["metadata"] = contract.metadata
    document["failureCatalog"] = {"closed": list(contract.closed), "open": list(contract.open)}
    return document


def _write_phase(phase: PhaseContract) -> dict[str, Any]:
    written: dict[str, Any] = {"action": {"kind": phase.kind, "description": phase.description}}
    if phase.parameters is not None:
        written["parameters"] = phase.parameters
    if phase.structural:
        written["structural"] = list(phase.structural)
    return written


PROVIDER_CONTRACTS = ProviderContracts(
    CONTRACTS, SPECIFIED, FAILURES, find_provider_problems, find_problems, document_of
)
