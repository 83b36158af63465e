"""Read the text of a playbook: the result is a playbook, or all errors of the text."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from callboard.bus.events import Problem
from callboard.languages.playbook import findings
from callboard.languages.playbook.branches import branches, split
from callboard.languages.playbook.directives import CUT, Directives, content
from callboard.languages.playbook.document import ARTIFACT_TYPES, TYPES, Input, Playbook, Step
from callboard.languages.playbook.patterns import ARTIFACT_TYPE, INPUT, PLACEHOLDER
from callboard.languages.playbook.sections import Line, Section, Sections, join_lines, sections


class Parsed(Struct, frozen=True):
    """The result of parsing a text: the playbook, None if there are errors, and all problems by line."""

    playbook: Playbook | None
    problems: list[Problem] = field(default_factory=list[Problem])

    @property
    def errors(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity == "warning"]


def parse(source: str) -> Parsed:
    """Read a playbook."""
    if unreadable := _unreadable(source):
        return Parsed(None, [unreadable])
    found = sections(source)
    inputs, problems = _inputs(found)
    steps, odd = _Steps({one.name for one in inputs}).read(found.of("step"))
    artifact, unknown = _artifact(found)
    problems += [*odd, *unknown, *_numbers(steps)]
    problems += [findings.no_title()] if not found.title else []
    problems += [findings.no_steps()] if not steps else []
    problems.sort(key=lambda problem: problem.line or 0)
    if any(problem.severity == "error" for problem in problems):
        return Parsed(None, problems)
    playbook = Playbook(
        title=found.title,
        description=found.description,
        system_prompt=_system(found),
        inputs=inputs,
        steps=steps,
        artifact_type=artifact,
    )
    return Parsed(playbook, problems)


def _unreadable(source: str) -> Problem | None:
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return findings.not_unicode()
    if size > findings.BYTES_MAX:
        return findings.too_large(size)
    return None if source.removeprefix("\ufeff").strip() else findings.empty()


def _system(found: Sections) -> str:
    """Return the text of the last system section."""
    return next((join_lines(section.body) for section in reversed(list(found.of("system")))), "")


def _inputs(found: Sections) -> tuple[list[Input], list[Problem]]:
    """Return the inputs of the last section of inputs, and the problems of all such sections."""
    inputs: list[Input] = []
    problems: list[Problem] = []
    for section in found.of("inputs"):
        inputs, wrong = _read_inputs(section.body)
        problems += wrong
    return inputs, problems


def _artifact(found: Sections) -> tuple[str, list[Problem]]:
    """Return the artifact type: the first one of the last section that has one."""
    kind, problems = "", list[Problem]()
    for section in found.of("artifacts"):
        declared_types = ((ARTIFACT_TYPE.fullmatch(line.text.strip()), line) for line in section.body)
        match, line = next(((match, line) for match, line in declared_types if match), (None, Line(0, "")))
        if match is None:
            continue
        if PLACEHOLDER.search(match[1]):
            kind = match[1]
            continue
        kind = match[1].lower()
        if kind not in ARTIFACT_TYPES:
            problems.append(findings.artifact_type(kind, line.number))
    return kind, problems


def _numbers(steps: Iterable[Step]) -> Iterator[Problem]:
    """Yield a warning for each step whose number does not follow that of the previous step."""
    expected = 1
    for step in steps:
        if step.number != expected:
            yield findings.step_number(expected, step.number, step.line)
        expected = step.number + 1


class _Steps:
    """Reads steps in order, and tracks the names that their conditions can test."""

    def __init__(self, inputs: set[str]) -> None:
        self._inputs = inputs
        self._outputs: set[str] = set()

    def read(self, found: Iterable[Section]) -> tuple[list[Step], list[Problem]]:
        steps: list[Step] = []
        problems: list[Problem] = []
        for section in found:
            step, odd = self._step(section)
            steps.append(step)
            problems += odd
        return steps, problems

    def _step(self, section: Section) -> tuple[Step, list[Problem]]:
        parts = split(section.body)
        directives = Directives(line for line in parts.lines if line is not None)
        text = content(CUT if line is None or directives.take(line) else line.text for line in parts.lines)
        response = f"{findings.ELICITED}{section.number}"
        if "elicitation" in directives.fields:
            # The response is known before a branch of the same step is chosen.
            self._outputs.add(response)
        found, problems = branches(section.number, parts, self._source)
        step = Step(
            number=section.number,
            label=str(section.number),
            title=section.title,
            content=text,
            is_branching=parts.branching,
            branches=found,
            line=section.line,
            **directives.fields,
        )
        inner = [one for branch in found for one in branch.steps]
        self._outputs |= {one.output_var for one in (step, *inner) if one.output_var}
        if any(one.elicitation for one in inner):
            self._outputs.add(response)
        return step, [*directives.problems, *problems]

    def _source(self, name: str) -> str | None:
        if name in self._inputs:
            return "input"
        return "step_output" if name in self._outputs else None


def _read_inputs(body: Iterable[Line]) -> tuple[list[Input], list[Problem]]:
    """Read the declarations in a section of inputs, one a line; return the inputs, and the problems."""
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
    """Read a type specification: a type, then after a colon the options of an enum, or the default of another type."""
    word, _, value = spec.partition(":")
    kind = TYPES.get(word.strip().lower(), "string")
    common: dict[str, Any] = {"name": name, "description": description.strip(), "line": line}
    if kind == "enum":
        return Input(type=kind, options=[option for one in value.split(",") if (option := one.strip())], **common)
    default = value.strip()
    return Input(type="string" if kind == "json" else kind, default=default, required=not default, **common)
