"""Directives: the lines of a step that are not prompt text, and what is left when they have been taken out."""

from collections.abc import Iterable
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.playbook import findings
from callboard.languages.playbook.document import TYPES, Elicitation, ElicitType, PromptRef, ToolCall
from callboard.languages.playbook.patterns import ELICIT, OUTPUT, PROMPT, QUOTED, QUOTED_ARGUMENT, TOOL, VARIABLE
from callboard.languages.playbook.sections import Line

CUT = None
"""Stands among the lines of a text where something was taken out."""

_ELICIT_TYPES: dict[str, ElicitType] = {"input": "input", "confirm": "confirm", "select": "select"}


class Directives:
    """The directives of one step; of each kind the last one counts, as a whole."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        """What they say, as fields of a step."""
        self.problems: list[Problem] = []

    def take(self, line: Line) -> bool:
        """Take a line, if it is a directive; False if it stays in the text."""
        text = line.text.strip()
        if not text.startswith("@"):
            return False
        return self._output(text) or self._elicit(text, line) or self._prompt(text, line) or self._tool(text)

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
        connection, behind = _argument(match[1])
        tool, arguments = _argument(behind)
        if connection and tool:
            call = ToolCall(connection_name=connection, tool_name=tool, arguments=arguments.strip())
            self.fields["tool_call"] = call
        return True


def scheme_of(reference: str) -> str | None:
    """Return the scheme of a prompt reference; None of a variable and of a bare identifier."""
    scheme, colon, _ = reference.partition(":")
    return scheme.strip() if colon and not VARIABLE.fullmatch(reference) else None


def _argument(text: str) -> tuple[str, str]:
    """Split off the first argument, a name with or without quotes; return it and what is behind its comma."""
    if quoted := QUOTED_ARGUMENT.match(text):
        return quoted[1], text[quoted.end() :]
    name, _, behind = text.partition(",")
    return name.strip(), behind


def content(lines: Iterable[str | None]) -> str:
    """Join the lines of a step's text, `CUT` standing where something was taken out.

    No line keeps blanks at its end, and a cut leaves one blank line at most of those around it.
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
    """Return the blank lines that a run of blank lines and cuts amounts to."""
    lines = len([line for line in blank if line is not CUT])
    return [""] * (min(lines, 1) if CUT in blank else lines)
