"""The flow language's port for authors, and its conformance: the profiles that this implementation claims, and the
comparison of Results with expected ones.

A Result equals the expected one by the rules of the specification's conformance corpus. The types are equal, and so
are the values of successes. Each member of an expected failure is deeply equal to that of the Result; ``previous`` is
compared by these same rules. An expected null may be absent, and members that are not expected are ignored. Failures
inside ``details``, the evidence of a Gather, are compared as failures too.
"""

import json
from typing import Any, cast

from callboard.bus.events import Problem
from callboard.languages.authoring import About, Authoring, Conformance
from callboard.languages.flow.children import find_child_files
from callboard.languages.flow.document import Flow
from callboard.languages.flow.interpret import ROOT
from callboard.languages.flow.outline import outline
from callboard.languages.flow.schema import DESCRIPTIONS, flow_schema
from callboard.languages.plan import Definition
from callboard.languages.problems import format_location
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

PROFILES = "https://mwl.dev/v0.1/conformance/"

CLAIM: tuple[str, ...] = (
    f"{PROFILES}core",
    f"{PROFILES}expressions/cel",
    f"{PROFILES}expressions/cel/strings",
    f"{PROFILES}expressions/cel/lists",
    f"{PROFILES}expressions/cel/sets",
    f"{PROFILES}expressions/cel/encoders",
    f"{PROFILES}expressions/cel/math",
)
"""The URIs of the profiles, compared character for character."""


SHOWN_CHARS_MAX = 300
"""How many characters of a value a difference shows."""


def find_differences(expected: dict[str, Any], found: dict[str, Any], place: str = "") -> list[str]:
    """Return one line per difference; it begins with the member, such as ``previous.code``."""
    if expected["type"] != found.get("type"):
        came = {name: found[name] for name in ("type", "code", "message", "value") if name in found}
        return [f"{place}type: expected {expected['type']}, found {_show_value(came)}"]
    if expected["type"] == "success":
        value = found.get("value")
        return (
            [] if same(expected["value"], value) else [_describe_difference(f"{place}value", expected["value"], value)]
        )
    return [line for name, value in expected.items() for line in _compare_member(name, value, found.get(name), place)]


def _compare_member(name: str, expected: JSON, found: JSON, place: str) -> list[str]:
    if expected is None:
        matches = found is None
    elif name == "previous" and isinstance(found, dict):
        return find_differences(expected, cast("dict[str, Any]", found), f"{place}previous.")
    elif name == "details":
        matches = _matches_details(expected, found)
    else:
        matches = same(expected, found)
    return [] if matches else [_describe_difference(f"{place}{name}", expected, found)]


def _describe_difference(place: str, expected: JSON, found: JSON) -> str:
    return f"{place}: expected {_show_value(expected)}, found {_show_value(found)}"


def _show_value(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"


def _matches_details(expected: JSON, found: JSON) -> bool:
    match expected, found:
        case {"type": str(), "code": str()}, {"type": str(), "code": str()}:
            return not find_differences(expected, found)
        case dict(), dict():
            return expected.keys() == found.keys() and all(
                _matches_details(expected[name], found[name]) for name in expected
            )
        case list(), list():
            return len(expected) == len(found) and all(map(_matches_details, expected, found))
        case _:
            return same(expected, found)


def same(one: JSON, other: JSON) -> bool:
    """Return whether two JSON values are deeply equal: 5 equals 5.0, true does not equal 1."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        case (bool(), _) | (_, bool()):
            return one is other
        case _:
            return bool(one == other)


def _about(flow: Flow) -> About:
    declared: Any = flow.parameters.schema.get("properties")
    return About(parameters=dict(declared) if isinstance(declared, dict) else {})


def _children(definition: Definition[Flow]) -> dict[str, str]:
    return {format_location(at): file for at, file in find_child_files(decode_json(definition.canonical))}


def _misfits(flow: Flow, arguments: dict[str, Any]) -> list[Problem]:
    found = flow.parameters.find_violation(arguments)
    # The specification requires that such a run starts, and that its Result reports the violation.
    message = "the arguments do not fit the parameters, so the run fails at once"
    violations = (found, *found.all) if found else ()
    return [Problem("ARGUMENTS", f"{message}: {one}", "arguments", severity="warning") for one in violations]


AUTHORING = Authoring(
    outline=lambda flow: outline(flow, ROOT),
    about=_about,
    misfits=_misfits,
    children=_children,
    conformance=Conformance(CLAIM, find_differences),
    schema=flow_schema,
    descriptions=DESCRIPTIONS,
)
