"""The models of the playbook document, with the names of the specification's test vectors.

An empty field means the same as an absent one. ``line`` counts from 1 and does not affect the meaning of a playbook.
"""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from callboard.languages.approvals.member import ONE_TOOL, check_member

VariableType = Literal["string", "text", "number", "boolean", "enum", "json"]

ElicitType = Literal["input", "confirm", "select"]

TYPES: dict[str, VariableType] = {
    "string": "string",
    "text": "text",
    "number": "number",
    "num": "number",
    "int": "number",
    "float": "number",
    "boolean": "boolean",
    "bool": "boolean",
    "enum": "enum",
    "select": "enum",
    "choice": "enum",
    "json": "json",
}
"""The names of types, in lower case. Any other name means ``string``, and so does ``json`` for an input."""

ARTIFACT_TYPES = ("markdown", "json", "mermaid", "chartjs", "html_css", "javascript", "typescript")

Unfilled = Annotated[
    str,
    WithJsonSchema(
        {
            "type": "string",
            "not": {"pattern": r"\{\{\s*\w"},
            "description": "Passed on as it is written: placeholders are filled in in the texts of steps only.",
        }
    ),
]
"""A text without interpolation. A placeholder in it is legal, but most likely a mistake."""

Number = Annotated[int, Field(ge=0)]


class PlaybookPart(BaseModel):
    """An object of a document: closed, strict, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Input(PlaybookPart):
    """A declared input. An ``enum`` has ``options``, all other types may have a ``default``, a text as written."""

    name: str
    type: Literal["string", "text", "number", "boolean", "enum"] = "string"
    default: str = ""
    options: list[str] = []
    description: str = ""
    required: bool = True
    line: Number = 0


class PromptRef(PlaybookPart):
    """The text in the parentheses of ``@prompt``, including the scheme."""

    prompt_id: str


class Elicitation(PlaybookPart):
    """A question to a person."""

    type: ElicitType
    prompt: Unfilled = ""
    options: list[str] = []


class ToolCall(PlaybookPart):
    """A tool to call; ``arguments`` is the text of a JSON object as written, placeholders and all."""

    connection_name: str
    tool_name: str
    arguments: str = ""


class Condition(PlaybookPart):
    """A comparison of texts; ``source`` says where the variable is declared."""

    variable: str
    operator: Literal["==", "!="]
    value: str = ""
    source: Literal["input", "step_output"] = "input"


class Branch(PlaybookPart):
    """Sub-steps, and the condition on which they are carried out; None is that of ``else``."""

    condition: Condition | None = None
    steps: list["Step"] = []


class Step(PlaybookPart):
    """A step, or a sub-step of a branch, which has the number of the step around it.

    ``approve`` is an extension of the specification: the terms on which a person approves the call of the tool.
    """

    number: Number
    label: str
    title: str
    content: str = ""
    prompt_ref: PromptRef | None = None
    output_var: str = ""
    output_type: VariableType | None = None
    output_options: list[str] = []
    extract_field: str = ""
    elicitation: Elicitation | None = None
    tool_call: ToolCall | None = None
    approve: Annotated[Any, AfterValidator(partial(check_member, several=False)), WithJsonSchema(ONE_TOOL)] = None
    is_branching: bool = False
    branches: list[Branch] = []
    line: Number = 0


class Playbook(PlaybookPart):
    """A playbook; ``artifact_type`` may be one that no one knows, or hold a placeholder."""

    title: str
    description: str = ""
    system_prompt: Unfilled = ""
    inputs: list[Input] = []
    steps: list[Step]
    artifact_type: str = ""


_SHOWN = {
    "title",
    "description",
    "system_prompt",
    "inputs",
    "steps",
    "artifact_type",
    "name",
    "type",
    "required",
    "number",
    "label",
    "content",
    "output_var",
    "extract_field",
    "is_branching",
    "condition",
    "value",
}
"""Members that objects of the vectors have even if they are empty."""


def to_vector_form(playbook: Playbook, *, lines: bool = True) -> dict[str, Any]:
    """Return a playbook in the JSON form of the specification's vectors, with or without line numbers."""
    return _add_lines(playbook.model_dump(mode="json"), lines)


def _add_lines(value: Any, lines: bool) -> Any:
    match value:
        case dict():
            kept = {name: one for name, one in value.items() if one or name in _SHOWN}
            return {name: _add_lines(one, lines) for name, one in kept.items() if lines or name != "line"}
        case list():
            return [_add_lines(one, lines) for one in value]
        case _:
            return value
