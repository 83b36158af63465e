"""Directives: the lines of a step that are not prompt text, and the text that remains without them."""

from collections.abc import Iterable
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.approvals.member import find_faults
from callboard.languages.playbook import findings
from callboard.languages.playbook.document import TYPES, Elicitation, ElicitType, PromptRef, ToolCall
from callboard.languages.playbook.patterns import (
    APPROVE,
    ELICIT,
    OUTPUT,
    PROMPT,
    QUOTED,
    QUOTED_ARGUMENT,
    TOOL,
    VARIABLE,
)
from callboard.languages.playbook.sections import Line
from callboard.languages.problems import format_location
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

CUT = None
"""Marks a place among the lines of a text from which a directive or a block was removed."""

_ELICIT_TYPES: dict[str, ElicitType] = {"input": "input", "confirm": "confirm", "select": "select"}


class Directives:
    """The directives of one step; the last directive of each kind replaces earlier ones.

    ``lines`` are those of the step: only one that calls a tool can have ``@approve``, which the specification does not
    know. In any other step such a line stays in the text.
    """

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._calls = any(TOOL.fullmatch(line.text.strip()) for line in lines)
        self.fields: dict[str, Any] = {}
        """The fields of a step that the directives set."""
        self.problems: list[Problem] = []

    def take(self, line: Line) -> bool:
        """Read a line; return whether it is a directive. Other lines stay in the text."""
        text = line.text.strip()
        if not text.startswith("@"):
            return False
        return (
            self._output(text)
            or self._elicit(text, line)
            or self._prompt(text, line)
            or self._tool(text)
            or self._approve(text, line)
        )

    def _output(self, text: str) -> bool:
        match = OUTPUT.fullmatch(text)
        if match is None:
            return False
        self.fields["output_var"] = match[1]
        self.fields["output_type"] = TYPES.get(match[2].lower(), "string") if match[2] else None
        self.fields["output_options"] = QUOTED.findall(match[3])
        self.fields["extract_field"] = match[4] or ""
        return True

    def _elicit(self, text: str, line: Line) -> bool:
        match = ELICIT.fullmatch(text)
        if match is None:
            return False
        kind = _ELICIT_TYPES.get(match[1].lower())
        if kind is None:
            self.problems.append(findings.elicit_type(match[1], line.number))
            return False
        prompt, *options = QUOTED.findall(match[2] or "") or [""]
        self.fields["elicitation"] = Elicitation(type=kind, prompt=prompt, options=options)
        return True

    def _prompt(self, text: str, line: Line) -> bool:
        match = PROMPT.fullmatch(text)
        if match is None:
            return False
        self.fields["prompt_ref"] = PromptRef(prompt_id=match[1])
        scheme = scheme_of(match[1])
        if scheme is not None and scheme not in findings.PROMPT_SCHEMES:
            self.problems.append(findings.prompt_scheme(scheme, line.number))
        return True

    def _tool(self, text: str) -> bool:
        match = TOOL.fullmatch(text)
        if match is None:
            return False
        connection, rest = _argument(match[1])
        tool, arguments = _argument(rest)
        if connection and tool:
            call = ToolCall(connection_name=connection, tool_name=tool, arguments=arguments.strip())
            self.fields["tool_call"] = call
        return True

    def _approve(self, text: str, line: Line) -> bool:
        match = APPROVE.fullmatch(text)
        if match is None or not self._calls:
            return False
        written = (match[1] or "").strip()
        try:
            terms: JSON = decode_json(written) if written.startswith("{") else written or True
        except JSON_ERRORS as error:
            self.problems.append(findings.approval(f"the terms are not JSON: {error}", line.number))
            return True
        faults = [f"{format_location(at)}: {what}" if at else what for at, what, _ in find_faults(terms, several=False)]
        self.problems += [findings.approval(fault, line.number) for fault in faults]
        if not faults:
            self.fields["approve"] = terms
        return True


def scheme_of(reference: str) -> str | None:
    """Return the scheme of a prompt reference; None for a variable or a bare identifier."""
    scheme, colon, _ = reference.partition(":")
    return scheme.strip() if colon and not VARIABLE.fullmatch(reference) else None


def _argument(text: str) -> tuple[str, str]:
    """Split off the first argument, a name with or without quotes; return it and the text after its comma."""
    if quoted := QUOTED_ARGUMENT.match(text):
        return quoted[1], text[quoted.end() :]
    name, _, rest = text.partition(",")
    return name.strip(), rest


def content(lines: Iterable[str | None]) -> str:
    """Join the lines of a step's text, in which `CUT` marks removed lines.

    Trailing blanks are removed. Of the blank lines around a cut at most one remains.
    """
    kept: list[str] = []
    blank: list[str | None] = []
    for line in lines:
        if line is None or not line.strip():
            blank.append(line)
        else:
            kept += _gap(blank)
            kept.append(line.rstrip())
            blank = []
    return "\n".join(kept).strip()


def _gap(blank: list[str | None]) -> list[str]:
    """Return the blank lines that replace a sequence of blank lines and cuts."""
    lines = len([line for line in blank if line is not CUT])
    return [""] * (min(lines, 1) if CUT in blank else lines)
