"""Retries in vain: policies by which a call runs again after failures of its provider that no other run mends."""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard.languages.cel.template_strings import expressions_in
from callboard.languages.flow.clauses import covers
from callboard.languages.flow.inspection import Here
from callboard.languages.flow.shipped import FINAL
from callboard.languages.flow.specified import RETRY
from callboard.lib.json_types import JSON

ANY = "*"
"""The pattern of those who want every failure tried again, and are believed."""


def vain_retries(here: Here, stack: JSON, call: JSON) -> None:
    """Warn of the policies, in a Call step's stack, that match final failures of the provider that is called."""
    provider = call.get("provider") if isinstance(call, dict) else None
    final = FINAL.get(provider, ()) if isinstance(provider, str) else ()
    for index, entry in enumerate(stack if final and isinstance(stack, list) else []):
        if isinstance(entry, dict) and entry.get("provider") == RETRY:
            policies = _policies(entry)
            if not any(True for _ in expressions_in(policies)):
                _tell(here.at(index, "onEntry", "with", "policies"), policies, final)


def _policies(entry: Mapping[str, Any]) -> list[JSON]:
    found: JSON = entry
    for name in ("onEntry", "with", "policies"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []


def _tell(here: Here, policies: Sequence[JSON], final: Sequence[str]) -> None:
    handled: set[str] = set()
    for index, policy in enumerate(policies):
        match = policy.get("match") if isinstance(policy, dict) else None
        if not isinstance(match, dict) or not match:
            continue
        # The first policy that matches a failure has it: what an earlier one takes is no longer to be told.
        taken = [code for code in final if code not in handled and covers(match, _failure(code))]
        handled.update(taken)
        codes: JSON = match.get("codes")
        if taken and isinstance(codes, list) and ANY not in codes:
            message = f"runs it again after {', '.join(taken)} too, which no other run mends"
            expected = "retryable: true beside the codes, or the codes that are worth another run"
            here.at(index, "match").warn("RETRY_IN_VAIN", message, expected)


def _failure(code: str) -> dict[str, JSON]:
    """Return the matcher that selects a final failure, and nothing else."""
    return {"codes": [code], "types": ["error"], "retryable": False}
