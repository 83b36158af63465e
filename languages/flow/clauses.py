"""The checks of failure matchers, of lists in which the first match wins, and of policies that retry in vain.

Source: page *Step mechanics*, section *Failure matching*.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard.languages.cel.template_strings import expression_body, expressions_in
from callboard.languages.flow.inspection import (
    Here,
    check_boolean,
    check_each,
    check_fields,
    check_literal_string,
    check_text,
    of_type,
)
from callboard.languages.flow.shipped_providers import FINAL
from callboard.languages.flow.specified_providers import RETRY
from callboard.lib.json_types import JSON

SPECIFIED_TYPES = ("error", "cancellation", "timeout", "skipped")
"""The failure types of the specification; all other lower-case names are reserved."""

_SUCCESS = "a success is not a failure"

check_retryable = of_type(bool, type(None), expected="true, false, null, or an expression that gives one")


def check_failure_type(here: Here, value: JSON) -> None:
    """Check the type of a failure that a step or a middleware constructs."""
    if value == "success":
        here.error("SUCCESS_TYPE", _SUCCESS, f"one of {', '.join(SPECIFIED_TYPES)}, or a name of your own")
        return
    check_text(here, value)
    if not isinstance(value, str) or expression_body(value) is not None:
        return
    if value not in SPECIFIED_TYPES and not value[:1].isupper():
        message = f"the type {value!r} is not one of the specification's, and lower-case names are reserved"
        here.warn("RESERVED_TYPE", message, "a type of your own in PascalCase")


def check_failure_code(here: Here, value: JSON) -> None:
    """Check the code of a failure that a step or a middleware constructs; warn of misleading prefixes."""
    check_text(here, value)
    if isinstance(value, str) and value.startswith(("System.", "Provider.")) and expression_body(value) is None:
        whose = "the engine" if value.startswith("System.") else "a provider"
        here.warn("RESERVED_CODE", f"the code {value!r} makes this failure look like one of {whose}", "another prefix")


def _check_matched_type(here: Here, value: JSON) -> None:
    if value == "success":
        here.error("SUCCESS_TYPE", f"{_SUCCESS} and is never matched", "the type of a failure")
    else:
        check_literal_string(here, value)


def check_matcher(here: Here, value: JSON) -> None:
    """Check a failure matcher, which must not contain expressions."""
    known = {
        "codes": check_each(check_literal_string, filled=True),
        "types": check_each(_check_matched_type, filled=True),
        "retryable": check_boolean,
    }
    found = check_fields(here, value, known)
    if found == {}:
        here.error("SCHEMA", "must not be empty", 'codes, types or retryable; any failure is codes: ["*"]')


def check_policies(here: Here, value: JSON) -> None:
    """Warn of policies of a Retry that are never reached, if the policies contain no expressions."""
    if isinstance(value, list) and not any(True for _ in expressions_in(value)):
        warn_of_unreachable_matchers(
            here, [policy.get("match") if isinstance(policy, dict) else None for policy in value], "policy"
        )


def warn_of_unreachable_matchers(here: Here, matchers: Sequence[JSON], what: str) -> None:
    """Warn of matchers that are never reached, in a list of catch clauses or policies (``what``)."""
    earlier: list[tuple[int, Mapping[str, Any]]] = []
    for index, match in enumerate(matchers):
        if not isinstance(match, dict) or not match:
            continue
        before = next((at for at, other in earlier if covers(other, match)), None)
        if before is not None:
            message = f"is never reached: {what} {before + 1} already takes every failure that matches"
            here.at(index).warn("UNREACHABLE_CLAUSE", message)
        earlier.append((index, match))


def covers(broad: Mapping[str, Any], narrow: Mapping[str, Any]) -> bool:
    """Return whether ``broad`` selects every failure that ``narrow`` selects."""
    if "retryable" in broad and ("retryable" not in narrow or narrow["retryable"] is not broad["retryable"]):
        return False
    if not _all_among(broad, narrow, "types"):
        return False
    codes, fewer = _texts(broad, "codes"), _texts(narrow, "codes")
    if codes is None or "*" in codes:
        return True
    return fewer is not None and all(any(_matches(pattern, code) for pattern in codes) for code in fewer)


def _all_among(broad: Mapping[str, Any], narrow: Mapping[str, Any], name: str) -> bool:
    more, fewer = _texts(broad, name), _texts(narrow, name)
    return more is None or (fewer is not None and set(fewer) <= set(more))


def _texts(match: Mapping[str, Any], name: str) -> list[str] | None:
    found = match.get(name)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else None


def _matches(pattern: str, code: str) -> bool:
    """Return whether a pattern selects all codes that another pattern, or code, selects."""
    return pattern == code or (pattern.endswith(".*") and code.startswith(pattern[:-1]))


# -- retries in vain ---------------------------------------------------------------------------------------------------


_ANY = "*"
"""The pattern of authors who want to retry every failure; they get no warning."""


def warn_of_vain_retries(here: Here, stack: JSON, call: JSON) -> None:
    """Warn of policies in a Call step's stack that match final failures of the called provider."""
    provider = call.get("provider") if isinstance(call, dict) else None
    final = FINAL.get(provider, ()) if isinstance(provider, str) else ()
    for index, entry in enumerate(stack if final and isinstance(stack, list) else []):
        if isinstance(entry, dict) and entry.get("provider") == RETRY:
            policies = _policies(entry)
            if not any(True for _ in expressions_in(policies)):
                _warn_of_vain(here.at(index, "onEntry", "with", "policies"), policies, final)


def _policies(entry: Mapping[str, Any]) -> list[JSON]:
    found: JSON = entry
    for name in ("onEntry", "with", "policies"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []


def _warn_of_vain(here: Here, policies: Sequence[JSON], final: Sequence[str]) -> None:
    handled: set[str] = set()
    for index, policy in enumerate(policies):
        match = policy.get("match") if isinstance(policy, dict) else None
        if not isinstance(match, dict) or not match:
            continue
        # The first policy that matches a failure handles it, so later ones get no warning about it.
        taken = [code for code in final if code not in handled and covers(match, _failure(code))]
        handled.update(taken)
        codes: JSON = match.get("codes")
        if taken and isinstance(codes, list) and _ANY not in codes:
            message = f"retries after {', '.join(taken)} too, although a retry cannot succeed"
            expected = "retryable: true in addition to the codes, or only codes after which a retry can succeed"
            here.at(index, "match").warn("RETRY_IN_VAIN", message, expected)


def _failure(code: str) -> dict[str, JSON]:
    """Return the matcher that selects only this final failure."""
    return {"codes": [code], "types": ["error"], "retryable": False}
