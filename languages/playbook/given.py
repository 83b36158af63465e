"""The inputs of a start: values of the start, of a state document, and defaults; missing and unfit inputs."""

import re
from collections.abc import Iterable, Mapping

from callboard.bus.events import Problem
from callboard.languages.playbook.document import Input, Playbook
from callboard.languages.playbook.names import text_of
from callboard.languages.playbook.state import SavedState
from callboard.languages.problems import kind_of
from callboard.lib.json_types import JSON

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
BOOLEANS = ("true", "false", "yes", "no", "on", "off", "1", "0")
"""The texts of a boolean, in upper or lower case."""


def inputs(playbook: Playbook, given: JSON, state: SavedState) -> tuple[dict[str, str], list[Problem], list[Problem]]:
    """Return the value of every input as a text, all errors, and all warnings.

    A value of the start takes precedence over one of the state document, and that over a default; null counts as
    missing. Undeclared names are kept, since placeholders may refer to them.
    """
    if given is not None and not isinstance(given, dict):
        return {}, [Problem("INPUT", f"input is {kind_of(given)}", "input", expected="an object")], []
    brought = {**state.input_values, **(given or {})}
    values = {name: text_of(value) for name, value in brought.items() if value is not None}
    problems: list[Problem] = []
    for one in playbook.inputs:
        if one.name in values:
            problems += _misfit(one, values[one.name])
        elif not one.required:
            values[one.name] = one.default
        else:
            message = "is required but was not provided"
            problems.append(
                Problem("INPUT", message, f"input.{one.name}", one.line or None, expected=_describe_expected(one))
            )
    return values, problems, list(_strangers(playbook, given or {}))


def check_overrides(playbook: Playbook, variables: Mapping[str, JSON]) -> list[Problem]:
    """Check the variables of a resume or a fork; inputs among them follow the same rules as those of a start."""
    problems: list[Problem] = []
    for one in playbook.inputs:
        where = f"variables.{one.name}"
        if one.name in variables and variables[one.name] is None:
            problems.append(Problem("INPUT", "is null", where, one.line or None, expected=_describe_expected(one)))
        elif one.name in variables:
            problems += _misfit(one, text_of(variables[one.name]), where)
    return problems


def _misfit(one: Input, value: str, where: str = "") -> Iterable[Problem]:
    if not fits(one, value):
        where = where or f"input.{one.name}"
        yield Problem("INPUT", f"{value[:200]!r} does not fit", where, expected=_describe_expected(one))


def fits(one: Input, value: str) -> bool:
    """Return whether a text is a value of an input's type; a value of an enum must be one of its options."""
    match one.type:
        case "enum":
            return not one.options or value in one.options
        case "number":
            return _NUMBER.fullmatch(value.strip()) is not None
        case "boolean":
            return value.strip().lower() in BOOLEANS
        case _:
            return True


def _describe_expected(one: Input) -> str:
    if one.type == "enum" and one.options:
        return f"one of {', '.join(one.options)}"
    return {"number": "a number", "boolean": "true or false"}.get(one.type, "a text")


def _strangers(playbook: Playbook, given: dict[str, JSON]) -> Iterable[Problem]:
    declared = {one.name for one in playbook.inputs}
    for name in given:
        if name not in declared:
            message = "is not an input of this playbook; only placeholders can refer to it"
            known = ", ".join(sorted(declared)) or "none"
            yield Problem("UNKNOWN_INPUT", message, f"input.{name}", expected=f"one of {known}", severity="warning")
