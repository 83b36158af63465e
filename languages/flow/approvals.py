"""Approvals of flows: the parameter ``approve`` of the providers ``tool`` and ``model``.

Mistakes in it are errors, other than in most arguments: a call that needs approval must not be made without it.
"""

from collections.abc import Mapping

from callboard.languages.agent import Refusal
from callboard.languages.approvals.member import MEMBER, find_faults
from callboard.languages.cel.template_strings import expressions_in
from callboard.languages.flow.contracts.model import MODEL
from callboard.languages.flow.contracts.tool import TOOL
from callboard.languages.flow.dispatches import Dispatch, translate_failure
from callboard.languages.flow.inspection import Findings, WithBlock
from callboard.languages.flow.result import Result
from callboard.lib.json_types import JSON

_SEVERAL = {TOOL.contract.uri: False, MODEL.contract.uri: True}
"""Whether the calls of a provider may be of several tools, by its URI."""

CODES: Mapping[str, tuple[str, str]] = {
    "tool.denied": ("Denied", "error"),
    "tool.invalid_input": ("InvalidInput", "error"),
    "approval.expired": ("NotDecided", "timeout"),
}
"""The providers' codes and types of the failures of calls that were not approved."""


def check_approvals(findings: Findings) -> None:
    """Report everything that is wrong with the approvals that a document writes out."""
    for found in findings.arguments:
        several = _SEVERAL.get(found.contract.uri) if found.contract is not None else None
        given = found.value.get(MEMBER) if isinstance(found.value, dict) else None
        if several is None or given is None or any(True for _ in expressions_in(given)):
            continue
        for below, message, expected in find_faults(given, several=several):
            findings.error("APPROVAL", message, (*found.location, MEMBER, *below), expected)


def is_of_approval(found: WithBlock, pointer: str) -> bool:
    """Return whether a JSON pointer into arguments leads to an approval, which `check_approvals` checks."""
    concerned = found.contract is not None and found.contract.uri in _SEVERAL
    return concerned and (pointer == f"/{MEMBER}" or pointer.startswith(f"/{MEMBER}/"))


def find_fault(request: Dispatch) -> Result | None:
    """Return the failure of a call whose ``approve`` is wrong, such as one that an expression makes; else None."""
    given: JSON = request.arguments.get(MEMBER)
    faults = () if given is None else find_faults(given, several=_SEVERAL[request.contract.uri])
    told = "; ".join(message for _below, message, _expected in faults)
    return request.make_failure("Failed", f"approve: {told}", retryable=False) if told else None


def refuse_call(request: Dispatch, refusal: Refusal) -> Result:
    """Return the failure of a call that must not be made."""
    return translate_failure(request, refusal.error, CODES)
