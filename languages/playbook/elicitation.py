"""Responses to questions: which ones are valid, and the defaults of runs that ask no one. Pure."""

from collections.abc import Iterator

from callboard.bus.answer_schemas import TEXT, answer_schema
from callboard.languages.playbook.document import Elicitation, Playbook, Step
from callboard.languages.playbook.names import text_of
from callboard.lib.json_types import JSON

_YES = frozenset({"yes", "y", "true"})
_NO = frozenset({"no", "n", "false"})


def read_response(asked: Elicitation, response: JSON) -> str | None:
    """Read a response as a text; return None if it does not answer the question.

    The answer to ``confirm`` is ``yes`` or ``no``, also given as a boolean; that to ``select`` is one of the options;
    that to ``input`` is any text.
    """
    if response is None or isinstance(response, dict | list):
        return None
    said = text_of(response)
    match asked.type:
        case "confirm":
            word = said.strip().lower()
            return "yes" if word in _YES else "no" if word in _NO else None
        case "select" if asked.options:
            return next((one for one in asked.options if one in (said, said.strip())), None)
        case _:
            return said


def refusal(asked: Elicitation, response: JSON) -> str | None:
    """Return why a response does not answer a question; None if it does."""
    if read_response(asked, response) is not None:
        return None
    shown = "nothing" if response is None else text_of(response)[:200]
    match asked.type:
        case "confirm":
            return f"{shown!r} is neither yes nor no"
        case "select" if not isinstance(response, dict | list | None):
            return f"{shown!r} is none of the options: {', '.join(asked.options)}"
        case _:
            return f"{shown!r} is no text"


def schema_of(asked: Elicitation) -> JSON:
    """Return the JSON Schema of a response."""
    match asked.type:
        case "confirm":
            return answer_schema(["yes", "no"])
        case "select" if asked.options:
            return answer_schema(asked.options)
        case _:
            return TEXT


def default_response(asked: Elicitation) -> str:
    """Return the response of a run that asks no one."""
    match asked.type:
        case "confirm":
            return "yes"
        case "select":
            return asked.options[0] if asked.options else ""
        case _:
            return ""


def questions(playbook: Playbook) -> Iterator[tuple[Step, Elicitation]]:
    """Yield every step and sub-step that asks, with its question."""
    for step in playbook.steps:
        for one in (step, *(inner for branch in step.branches for inner in branch.steps)):
            # A step that calls a tool does not ask its question.
            if one.elicitation is not None and one.tool_call is None:
                yield one, one.elicitation
