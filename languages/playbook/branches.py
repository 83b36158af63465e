"""Branch blocks: the lines between ``if`` and ``endif`` in a step, as conditions with sub-steps.

The specification leaves some cases open; they are read as in its reference parsers. An ``if`` within a block begins
the next branch of that block. A block that is never closed loses its last branch. Markers without an ``if`` are
dropped.
"""

from collections.abc import Callable, Iterable
from re import Match

from msgspec import Struct, field

from callboard.bus.events import Problem
from callboard.languages.playbook import findings
from callboard.languages.playbook.directives import CUT, Directives, content
from callboard.languages.playbook.document import Branch, Condition, Step
from callboard.languages.playbook.patterns import ELSE, ENDIF, IF, SUB_STEP, heading
from callboard.languages.playbook.sections import Line

SourceOf = Callable[[str], str | None]
"""Returns where a variable is declared: ``input`` or ``step_output``; None if it is not declared."""


class BranchBlock(Struct, frozen=True):
    """A marker and the lines below it; ``test`` is the match of an ``if`` or ``elif``, None for ``else``."""

    test: Match[str] | None
    line: int
    body: list[Line] = field(default_factory=list[Line])


class BranchedStep(Struct):
    """The lines of a step outside of its branches, with `CUT` in place of markers, and its branches.

    ``lost`` is the last branch of a block that is never closed.
    """

    lines: list[Line | None] = field(default_factory=list[Line | None])
    blocks: list[BranchBlock] = field(default_factory=list[BranchBlock])
    lost: BranchBlock | None = None

    @property
    def branching(self) -> bool:
        return bool(self.blocks or self.lost)


def split(body: Iterable[Line]) -> BranchedStep:
    """Separate the branch blocks of a step from its other lines."""
    found = BranchedStep()
    for line in body:
        text = line.text.strip()
        test = IF.fullmatch(text)
        if test is None and text not in (ELSE, ENDIF):
            (found.lost.body if found.lost else found.lines).append(line)
            continue
        if found.lost is not None:
            found.blocks.append(found.lost)
        else:
            found.lines.append(CUT)
            if test is None or test[1] != "if":
                continue
        found.lost = None if text == ENDIF else BranchBlock(test, line.number)
    return found


def branches(number: int, found: BranchedStep, source_of: SourceOf) -> tuple[list[Branch], list[Problem]]:
    """Read the branches of the step ``number``; return them, and warnings about them."""
    made: list[Branch] = []
    problems: list[Problem] = []
    for index, block in enumerate(found.blocks):
        condition = _condition(block, source_of, problems)
        made.append(Branch(condition=condition, steps=_sub_steps(block, number, index, problems)))
    if found.lost is not None:
        _condition(found.lost, source_of, problems)
    return made, problems


def _condition(block: BranchBlock, source_of: SourceOf, problems: list[Problem]) -> Condition | None:
    if block.test is None:
        return None
    _, variable, operator, value = block.test.groups()
    source = source_of(variable)
    if source is None:
        problems.append(findings.undeclared_variable(variable, block.line))
    return Condition.model_validate(
        {"variable": variable, "operator": operator, "value": value, "source": source or "input"}
    )


def _sub_steps(block: BranchBlock, number: int, index: int, problems: list[Problem]) -> list[Step]:
    headed: list[tuple[str, str, int, list[Line]]] = []
    for line in block.body:
        if match := SUB_STEP.fullmatch(heading(line.text, 3) or ""):
            headed.append((match[1], match[2].strip(), line.number, []))
        elif headed:
            headed[-1][3].append(line)
    if headed:
        return [_sub_step(number, label, title, line, body, problems) for label, title, line, body in headed]
    # Without a heading the whole block is one sub-step, and its directives are not read.
    text = content(line.text for line in block.body)
    name = letters(index)
    whole = Step(number=number, label=f"{number}{name}", title=f"Branch {name}", content=text, line=block.line + 1)
    return [whole] if text else []


def _sub_step(number: int, label: str, title: str, line: int, body: list[Line], problems: list[Problem]) -> Step:
    directives = Directives(body)
    text = content(CUT if directives.take(one) else one.text for one in body)
    problems += directives.problems
    return Step(number=number, label=label, title=title, content=text, line=line, **directives.fields)


def letters(index: int) -> str:
    """Name a branch by its place: ``a`` to ``z``, then ``aa`` and so on."""
    name = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        name = chr(ord("a") + digit) + name
    return name
