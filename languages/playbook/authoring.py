"""The playbook language for editors and for commands that read definitions: descriptions, forms, files.

A playbook has two forms, markdown and the JSON of the specification's vectors; each converts to the other. A playbook
is written as markdown that `callboard.languages.playbook.parse` reads back as the same playbook.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.json import encode as encode_json
from pydantic import ValidationError

from callboard.bus.events import Problem
from callboard.languages.authoring import About, Authoring
from callboard.languages.json_text import read_json
from callboard.languages.playbook.branches import letters
from callboard.languages.playbook.document import Branch, Input, Playbook, Step, to_vector_form
from callboard.languages.playbook.options import PlaybookOptions
from callboard.languages.playbook.outline import outline
from callboard.languages.playbook.parse import parse
from callboard.languages.playbook.patterns import ELSE, ENDIF, TOOL_NAME
from callboard.languages.playbook.prompts import prompt_files
from callboard.languages.problems import Location, Tree, from_pydantic, kind_of


def write_markdown(playbook: Playbook) -> str:
    """Write a playbook, with its sections in the usual order and the directives of a step below its text."""
    first = playbook.inputs[0].name if playbook.inputs else "_"
    blocks = [f"# {playbook.title}", playbook.description]
    if playbook.system_prompt:
        blocks += ["## SYSTEM", playbook.system_prompt]
    if playbook.inputs:
        blocks += ["## INPUTS", "\n".join(_input(one) for one in playbook.inputs)]
    for step in playbook.steps:
        blocks += [f"## STEP {step.number}: {step.title}", *_body(step), *_branches(step, first)]
    if playbook.artifact_type:
        blocks += ["## ARTIFACTS", f"type: {playbook.artifact_type}"]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _input(one: Input) -> str:
    value = ", ".join(one.options) if one.type == "enum" else one.default
    spec = f"{one.type}: {value}" if value else one.type
    return f"- `{one.name}` ({spec})" + (f": {one.description}" if one.description else "")


def _body(step: Step) -> Iterator[str]:
    yield step.content
    yield "\n".join(_directives(step))


def _directives(step: Step) -> Iterator[str]:
    if step.prompt_ref is not None:
        yield f"@prompt({step.prompt_ref.prompt_id})"
    if step.tool_call is not None:
        names = (_name(step.tool_call.connection_name), _name(step.tool_call.tool_name))
        yield f"@tool({', '.join([*names, *filter(None, [step.tool_call.arguments])])})"
    if step.approve is not None and step.tool_call is not None:
        terms = encode_json(step.approve).decode() if isinstance(step.approve, dict) else step.approve
        yield "@approve" if terms is True else f"@approve({terms})"
    if step.elicitation is not None:
        asked = [step.elicitation.prompt, *step.elicitation.options]
        quoted = [f'"{text}"' for text in asked] if any(asked) or len(asked) > 1 else []
        yield f"@elicit({', '.join([step.elicitation.type, *quoted])})"
    if step.output_var:
        name = f"{step.output_var}: {step.output_type}" if step.output_type else step.output_var
        options = [f'"{one}"' for one in step.output_options]
        extract = [f'extract:"{step.extract_field}"'] if step.extract_field else []
        yield f"@output({', '.join([name, *options, *extract])})"


def _name(name: str) -> str:
    return name if TOOL_NAME.fullmatch(name) or '"' in name else f'"{name}"'


def _branches(step: Step, first_input: str) -> Iterator[str]:
    """Write the branch block of a step. A branching step without branches has a block that was never closed."""
    if not step.is_branching:
        return
    for index, branch in enumerate(step.branches):
        yield _marker(branch, "elif" if index else "if")
        for one in branch.steps:
            if not _headless(one, index):
                yield f"### STEP {one.label}: {one.title}"
            yield from _body(one)
    yield ENDIF if step.branches else f'```if {first_input} == ""```'


def _marker(branch: Branch, word: str) -> str:
    test = branch.condition
    return ELSE if test is None else f'```{word} {test.variable} {test.operator} "{test.value}"```'


def _headless(step: Step, index: int) -> bool:
    """Whether a sub-step represents a branch without headings, whose directives are not read."""
    name = letters(index)
    if (step.label, step.title) != (f"{step.number}{name}", f"Branch {name}"):
        return False
    return bool(step.content) and not any(True for _ in _directives(step))


def to_json(source: str) -> str | list[Problem]:
    """Return a markdown playbook as JSON, without line numbers."""
    parsed = parse(source)
    if parsed.playbook is None:
        return parsed.problems
    return (
        msgspec.json.format(msgspec.json.encode(to_vector_form(parsed.playbook, lines=False)), indent=2).decode() + "\n"
    )


def to_markdown(source: str) -> str | list[Problem]:
    """Return a playbook in JSON, alone or as the ``definition`` of a parse result, as markdown.

    A playbook that markdown cannot express is refused, such as one with a title of two lines.
    """
    tree = read_json(source)
    if not isinstance(tree, Tree):
        return tree
    value: Any = tree.value
    inside: Location = ("definition",) if isinstance(value, dict) and isinstance(value.get("definition"), dict) else ()
    bare = value["definition"] if inside else value
    if not isinstance(bare, dict):
        return [tree.problem("SCHEMA", f"expected a playbook object, got {kind_of(bare)}", expected="title and steps")]
    try:
        playbook = Playbook.model_validate(_drop_nulls(bare))
    except ValidationError as error:
        return from_pydantic(error, Playbook, tree, inside)
    text = write_markdown(playbook)
    parsed = parse(text)
    if parsed.playbook is None:
        return parsed.problems
    lost = _difference(to_vector_form(playbook, lines=False), to_vector_form(parsed.playbook, lines=False), ())
    if lost is not None:
        expected = "what the patterns of the specification can hold at this place"
        return [tree.problem("NOT_MARKDOWN", "cannot be written as markdown", (*inside, *lost), expected=expected)]
    return text


def _drop_nulls(value: Any) -> Any:
    """Leave out members that are null or empty, since these mean the same as absent ones."""
    match value:
        case dict():
            return {name: _drop_nulls(one) for name, one in value.items() if one is not None and one != ""}
        case list():
            return [_drop_nulls(one) for one in value]
        case _:
            return value


def _difference(one: Any, other: Any, at: Location) -> Location | None:
    """Return the place where two values first differ; None if they are equal."""
    match one, other:
        case dict(), dict():
            for name in [*one, *(name for name in other if name not in one)]:
                if name not in one or name not in other:
                    return (*at, name)
                if (found := _difference(one[name], other[name], (*at, name))) is not None:
                    return found
            return None
        case list(), list() if len(one) == len(other):
            places = (_difference(a, b, (*at, index)) for index, (a, b) in enumerate(zip(one, other, strict=True)))
            return next((found for found in places if found is not None), None)
        case _:
            return None if one == other else at


# -- parse results -----------------------------------------------------------------------------------------------------


def report(source: str, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return a parse result: ``valid``, ``definition``, ``warnings``, ``errors``.

    ``problems`` are all that were found, including those of a start. The warnings are those of the specification only.
    """
    parsed = parse(source)
    errors = [problem for problem in problems if problem.severity == "error"]
    return {
        "valid": parsed.playbook is not None and not errors,
        "definition": to_vector_form(parsed.playbook) if parsed.playbook is not None else None,
        "warnings": [_to_object(problem) for problem in parsed.warnings],
        "errors": [_to_object(problem) for problem in errors],
    }


def _to_object(problem: Problem) -> dict[str, Any]:
    place = f"{problem.where}: " if problem.where else ""
    line = {"line": problem.line} if problem.line else {}
    return {**line, "message": f"{place}{problem.message}"}


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


def _with_prompt(source: str, step: str, prompt: str) -> str | None:
    form: Any = msgspec.json.decode(text) if isinstance(text := to_json(source), str) else {}
    found = [one for one in form.get("steps", []) if one["label"] == step]
    if len(found) != 1:
        return None
    found[0]["content"] = prompt
    written = to_markdown(msgspec.json.encode(form).decode())
    return written if isinstance(written, str) else None


AUTHORING = Authoring(
    outline=outline,
    options=PlaybookOptions,
    about=_about,
    with_prompt=_with_prompt,
    beside=prompt_files,
    of_start=frozenset({"UNKNOWN_CONNECTION"}),
    report=report,
    forms={"json": to_json},
    from_forms={"json": to_markdown},
    schema=Playbook.model_json_schema,
    descriptions=DESCRIPTIONS,
)
