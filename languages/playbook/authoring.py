"""The playbook language for editors and for commands that read definitions: descriptions, forms, files."""

from collections.abc import Mapping
from typing import Any

from callboard.languages.authoring import About, Authoring
from callboard.languages.playbook.convert import report, to_json, to_markdown
from callboard.languages.playbook.document import Playbook
from callboard.languages.playbook.options import Options
from callboard.languages.playbook.outline import outline
from callboard.languages.playbook.prompts import prompt_files

DESCRIPTIONS: Mapping[str, str] = {
    # By ``Owner.member``, or by ``member`` for all owners.
    "title": "The heading.",
    "description": "What it is for.",
    "inputs": "The inputs that a start gives.",
    "steps": "The steps, in their order.",
    "artifact_type": "The type of the output: markdown, json, html and others.",
    "condition": "When the branch is taken; none for `else`.",
    "variable": "The named output or input that is compared.",
    "operator": "How it is compared.",
    "value": "What it is compared with.",
    "source": "The condition as it is written.",
    "Elicitation.type": "How it is asked: confirm, select or input.",
    "options": "The answers to choose from.",
    "Input.name": "The name, by which placeholders refer to it.",
    "Input.type": "The type of the value.",
    "default": "The value if a start gives none.",
    "required": "Whether a start has to give it.",
    "line": "The line of the document.",
    "prompt_id": "The prompt that the step uses, such as `file:prompt.md`.",
    "number": "The number of the step.",
    "label": "The number with the letter of a sub-step: `2a`.",
    "content": "What the model is asked, with placeholders.",
    "prompt_ref": "A prompt that is kept elsewhere.",
    "output_var": "The name under which the output is kept.",
    "output_type": "The type of the output.",
    "output_options": "The values of an enum.",
    "extract_field": "The member of a JSON answer that is taken.",
    "elicitation": "A question to a person.",
    "tool_call": "A tool that is called in place of the model.",
    "is_branching": "Whether the step has branches.",
    "branches": "The branches: if, elif, else.",
    "connection_name": "The connection that has the tool.",
    "tool_name": "The tool.",
    "arguments": "The arguments of the call.",
}


def _about(playbook: Playbook) -> About:
    return About(playbook.title, playbook.description, {one.name: _describe_input(one) for one in playbook.inputs})


def _describe_input(one: Any) -> dict[str, Any]:
    members = one.model_dump(mode="json", exclude={"name", "line"}, exclude_defaults=True)
    return {**members, "type": one.type, "required": one.required}


AUTHORING = Authoring(
    outline=outline,
    options=Options,
    about=_about,
    beside=prompt_files,
    of_start=frozenset({"UNKNOWN_CONNECTION"}),
    report=report,
    forms={"json": to_json},
    from_forms={"json": to_markdown},
    schema=Playbook.model_json_schema,
    descriptions=DESCRIPTIONS,
)
