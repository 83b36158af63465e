"""The section of inputs: one declaration a line."""

from collections.abc import Iterable
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.playbook import findings
from callboard.languages.playbook.document import TYPES, Input
from callboard.languages.playbook.patterns import INPUT
from callboard.languages.playbook.sections import Line


def read_inputs(body: Iterable[Line]) -> tuple[list[Input], list[Problem]]:
    """Read the lines of a section of inputs; return what they declare, and what is wrong or odd with them."""
    inputs: dict[str, Input] = {}
    found: list[Problem] = []
    for line in body:
        text = line.text.strip()
        if not text.startswith(("-", "*")):
            continue
        match = INPUT.fullmatch(text)
        if match is None:
            found.append(findings.malformed_input(text, line.number))
        elif match[1] in inputs:
            found.append(findings.duplicate_input(match[1], line.number))
        else:
            inputs[match[1]] = _input(match[1], match[2], match[3] or "", line.number)
    return list(inputs.values()), found


def _input(name: str, spec: str, description: str, line: int) -> Input:
    """Read a type specification: a type, and after the first colon the options of an enum or else the default."""
    word, _, value = spec.partition(":")
    kind = TYPES.get(word.strip().lower(), "string")
    common: dict[str, Any] = {"name": name, "description": description.strip(), "line": line}
    if kind == "enum":
        return Input(type=kind, options=[option for one in value.split(",") if (option := one.strip())], **common)
    default = value.strip()
    return Input(type="string" if kind == "json" else kind, default=default, required=not default, **common)
