"""The errors and warnings about a playbook's text: one function makes each, so that this module has all their texts.

A text with an error is not a playbook. The warnings are those of the specification only; all others are in
`callboard.languages.playbook.admit`.
"""

from callboard.bus.events import Problem
from callboard.languages.playbook.document import ARTIFACT_TYPES

BYTES_MAX = 200_000
"""The greatest size of a playbook, in bytes of UTF-8."""

PROMPT_SCHEMES = ("library", "file", "mcp")
"""The standard schemes of ``@prompt``."""

UNREADABLE = ("EMPTY", "TOO_LARGE", "NOT_UNICODE")
"""Codes of errors after which a text is not searched for near misses."""

ELICITED = "__elicit_step_"
"""The prefix of the name under which a step's response is kept; the number of the step follows."""

_ELICIT_TYPES = "input, confirm or select"


def _error(code: str, message: str, line: int | None = None, expected: str | None = None) -> Problem:
    return Problem(code, message, line=line, expected=expected)


def _warning(code: str, message: str, line: int, expected: str | None = None) -> Problem:
    return Problem(code, message, line=line, expected=expected, severity="warning")


def empty() -> Problem:
    return _error("EMPTY", "Document is empty", expected="a title (# Title) and at least one step (## STEP 1: Title)")


def too_large(size: int) -> Problem:
    message = f"Document has {size} bytes and exceeds the limit of {BYTES_MAX}"
    return _error("TOO_LARGE", message, expected="a shorter text; @prompt(file:…) takes long prompts from files")


def not_unicode() -> Problem:
    return _error("NOT_UNICODE", "Document holds a lone surrogate, which is no character", expected="UTF-8")


def no_title() -> Problem:
    message = "No title found: document must contain a level-1 heading (# Title)"
    return _error("NO_TITLE", message, expected="# Title, in front of everything else")


def no_steps() -> Problem:
    message = "No steps found: document must contain at least one ## STEP heading"
    return _error("NO_STEPS", message, expected="## STEP 1: Title")


def duplicate_input(name: str, line: int) -> Problem:
    return _error("DUPLICATE_INPUT", f'Duplicate input name: "{name}"', line, "a name of its own")


def approval(fault: str, line: int) -> Problem:
    expected = '@approve, @approve(once), or @approve({"when": "input.amount > 100", "expires": "4h"})'
    return _error("APPROVAL", f"The approval of the step's call is not valid: {fault}", line, expected)


def malformed_input(text: str, line: int) -> Problem:
    return _warning("MALFORMED_INPUT", f'Malformed input line: "{text}"', line, "- `name` (type): Description")


def step_number(expected: int, got: int, line: int) -> Problem:
    return _warning("STEP_NUMBER", f"Non-sequential step number: expected {expected}, got {got}", line)


def artifact_type(found: str, line: int) -> Problem:
    known = ", ".join(ARTIFACT_TYPES)
    return _warning("ARTIFACT_TYPE", f'Unknown artifact type: "{found}" (valid types: {known})', line)


def undeclared_variable(name: str, line: int) -> Problem:
    expected = "an input, or a name that an earlier step captures with @output"
    return _warning("UNDECLARED_VARIABLE", f'Undeclared branch variable: "{name}"', line, expected)


def elicit_type(found: str, line: int) -> Problem:
    return _warning("ELICIT_TYPE", f'Invalid elicit type: "{found}"', line, _ELICIT_TYPES)


def prompt_scheme(found: str, line: int) -> Problem:
    known = ", ".join(PROMPT_SCHEMES)
    return _warning("PROMPT_SCHEME", f'Unrecognized prompt scheme: "{found}" (standard schemes: {known})', line)
