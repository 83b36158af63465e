"""Write a playbook as markdown, which `callboard.languages.playbook.parse` reads back as the same playbook."""

from collections.abc import Iterator

from msgspec.json import encode as encode_json

from callboard.languages.playbook.branches import letters
from callboard.languages.playbook.document import Branch, Input, Playbook, Step
from callboard.languages.playbook.patterns import ELSE, ENDIF, TOOL_NAME


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
