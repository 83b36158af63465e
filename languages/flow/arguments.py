"""The check of literal arguments against the parameters of providers and flows.

Arguments that do not fit fail only when they are used, so they are warnings. If arguments contain expressions, only
violations that do not depend on the expressions are reported, such as missing or unknown names.
"""

from callboard.languages.cel.template_strings import expressions_in
from callboard.languages.flow.approvals import is_of_approval
from callboard.languages.flow.inspection import Arguments, Findings
from callboard.languages.flow.validation import Schema, Violation
from callboard.lib.json_types import JSON

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


def _warn(findings: Findings, found: Arguments, violation: Violation) -> None:
    what = found.contract.uri if found.contract else "the flow"
    when = f" at {found.phase}" if found.phase else ""
    message = f"the arguments do not fit the parameters of {what}{when}, so it fails where it is used: {violation}"
    findings.warn("ARGUMENTS", message, found.location)


def _is_certain(violation: Violation, arguments: JSON) -> bool:
    """Return whether a violation is certain for all values of the expressions in the arguments."""
    if not any(True for _ in expressions_in(arguments)):
        return True
    keywords = violation.schema_path.split("/")
    if _CONDITIONAL.intersection(keywords):
        return False
    return keywords[-1] in _OF_NAMES or not any(True for _ in expressions_in(violation.value))


def _schema(found: Arguments, schemas: dict[tuple[str, str | None], Schema]) -> Schema | None:
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
