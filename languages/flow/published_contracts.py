"""Contracts as the specification's provider documents: the form in which they are published and recorded.

The reverse of `callboard.languages.provider_contract.contract_of`.
"""

from typing import Any

from callboard.languages.flow.provider_document import PROVIDER_SCHEMA
from callboard.languages.provider_contract import Contract, PhaseContract


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
        document["phases"] = {name: _phase(phase) for name, phase in contract.phases.items()}
    if contract.parameters is not None:
        document["parameters"] = contract.parameters
    if contract.metadata is not None:
        document["metadata"] = contract.metadata
    document["failureCatalog"] = {"closed": list(contract.closed), "open": list(contract.open)}
    return document


def _phase(phase: PhaseContract) -> dict[str, Any]:
    written: dict[str, Any] = {"action": {"kind": phase.kind, "description": phase.description}}
    if phase.parameters is not None:
        written["parameters"] = phase.parameters
    if phase.structural:
        written["structural"] = list(phase.structural)
    return written
