"""Near misses of playbooks: lines that are probably meant as headings, directives, branches or placeholders, but are
not read as such.

``callboard validate`` and the verdict of a start show them as warnings; a parse result does not contain them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from callboard.bus.events import Problem
from callboard.languages.playbook.branches import split
from callboard.languages.playbook.document import Elicitation, Playbook, Step
from callboard.languages.playbook.findings import ELICITED
from callboard.languages.playbook.given import BOOLEANS
from callboard.languages.playbook.near_directives import Near, is_directive, near_directives
from callboard.languages.playbook.patterns import ELICIT, ELSE, ENDIF, IF, PLACEHOLDER, STEP, SUB_STEP, TOOL, heading
from callboard.languages.playbook.sections import Line, Section, sections
from callboard.languages.problems import did_you_mean, hint_at, hints_within
from callboard.languages.variables import REFERENCE, find_references
from callboard.lib.json_types import JSON
from callboard.lib.text_bytes import plain_text

_LIKE = re.compile(r"```\s*(if|elif|else\s*if|elsif|else|end\s*if|fi|end)\b\s*(.*?)\s*(?:```)?\s*", re.IGNORECASE)
"""A line that is or resembles a marker: its word and its condition."""

_CONDITION = re.compile(r"""\W*(\w+)\W*?\s*(===?|=|!==?|is\s+not|is|<>)\s*["'“]?([^"'“”]*)["'”]?\W*""", re.ASCII)

_UNLETTERED = re.compile(r"###\s*step\s*\d+\s*[:.)–—-]", re.IGNORECASE | re.ASCII)
"""A heading of a sub-step that lacks its letter."""

OPTIONS_LISTED_MAX = 12

Options = Mapping[str, Sequence[str]]
"""The possible values of the names whose values are declared."""


def is_marker(text: str) -> bool:
    return IF.fullmatch(text) is not None or text in (ELSE, ENDIF)


def near_markers(lines: list[Line]) -> Iterator[Near]:
    """Yield lines that resemble markers of a branch and stay in the text."""
    for line in lines:
        text = line.text.strip()
        match = _LIKE.fullmatch(text) if text.startswith("```") and not is_marker(text) else None
        if match and (match[2] or text.endswith("```") or match[1].lower().startswith("end")):
            message = f"{text!r} is not read as a marker of a branch and stays in the text"
            yield Near(line, text, message, _meant(match[1].lower(), match[2]))


def _meant(word: str, condition: str) -> str:
    if word in ("fi",) or word.startswith("end"):
        return ENDIF
    if word == "else" and not condition:
        return ELSE
    word = "if" if word == "if" else "elif"
    found = _CONDITION.fullmatch(condition)
    if found is None:
        return f'```{word} name == "value"```, one comparison of a name with a text'
    operator = "!=" if found[2].startswith(("!", "<")) or "not" in found[2] else "=="
    return f'```{word} {found[1]} {operator} "{found[3].strip()}"```'


def near_blocks(lines: list[Line]) -> Iterator[Near]:
    """Yield the markers of a step that are in a wrong order: nested, repeated or unopened blocks."""
    opened, closed = 0, 0
    for line in lines:
        text = line.text.strip()
        test = IF.fullmatch(text)
        if test and test[1] == "if":
            if opened:
                message = f"the block of line {opened} is still open: this ends its branch, and blocks cannot be nested"
                yield Near(line, text, message, "```elif …``` for another case, or ```endif``` before a separate step")
            elif closed:
                message = (
                    f"this step has a block already, until line {closed}: both become one list of branches, of which "
                    "the first that holds is taken"
                )
                yield Near(line, text, message, "the second block in a separate step")
            opened = line.number
        elif (test or text in (ELSE, ENDIF)) and not opened:
            yield Near(line, text, f"no ```if``` is open here, so {text} is dropped", "an ```if …``` before it")
        elif text == ENDIF:
            opened, closed = 0, line.number


def near_bodies(lines: list[Line], number: int) -> Iterator[Near]:
    """Yield lines of a branch that are lost or not read, since they are not in a sub-step."""
    found = split(lines)
    for index, block in enumerate(found.blocks):
        heads = [at for at, line in enumerate(block.body) if SUB_STEP.fullmatch(heading(line.text, 3) or "")]
        form = f"### STEP {number}{chr(ord('a') + min(index, 25))}: Title, in front of it"
        first = block.body[: heads[0]] if heads else [line for line in block.body if is_directive(line)]
        lost = next((line for line in first if line.text.strip()), None)
        if lost is not None and heads:
            yield Near(lost, lost.text.strip(), "text in front of a branch's first sub-step is lost", form)
        elif lost is not None:
            message = "a directive in a branch without a sub-step stays in the text"
            yield Near(lost, lost.text.strip(), message, form)
        for line in block.body if not heads else ():
            if _UNLETTERED.match(line.text):
                message = f"{line.text.strip()!r} is not read as the heading of a sub-step and stays in the text"
                yield Near(line, line.text.strip(), message, form.partition(",")[0])


def near_conditions(lines: list[Line], options: Options) -> Iterator[Near]:
    """Yield conditions on values that a name never has."""
    for line in lines:
        test = IF.fullmatch(line.text.strip())
        if test is None:
            continue
        _word, name, operator, value = test.groups()
        known = options.get(name)
        if "{{" in value:
            message = f"{value!r} is compared as it is written: placeholders are not filled in here"
            yield Near(line, value, message, "a value that is written out")
        elif known and value and value not in known and (known != BOOLEANS or value.lower() not in known):
            holds = "never" if operator == "==" else "always"
            listed = ", ".join(f'"{one}"' for one in known[:OPTIONS_LISTED_MAX])
            hint = hint_at(value.lower(), known)
            message = f"{name!r} is never {value!r}, so the condition {holds} holds{hint}"
            yield Near(line, f'"{value}"', message, f"one of {listed}")


PROBLEMS_MAX = 200
"""How many near misses of a text are reported."""

LINE_CHARS_MAX = 2_000
"""The longest line, in characters, that is searched for near misses."""

SECTIONS = ("SYSTEM", "SYSTEM PROMPT", "INPUTS", "ARTIFACTS", "OUTPUT")

_STEP = re.compile(r"(#{1,6})\s*step\s*#?\s*(\d{1,15})\s*([a-z])?(?![\w])\s*[:.)–—-]*\s*(.*)", re.IGNORECASE | re.ASCII)
"""A line that is or resembles the heading of a step: its level, its number and letter, and its title."""

_BRACES = re.compile(r"\{\{\s*([\w.\- ]{1,60}?)\s*(?=[:}])[^{}]{0,200}\}\}")

_CODES = {
    near_directives: "NEAR_DIRECTIVE",
    near_markers: "NEAR_MARKER",
    near_blocks: "BRANCH_BLOCK",
}


def near_misses(source: str, playbook: Playbook | None) -> list[Problem]:
    """Return the near misses of a text, by place; ``playbook`` is the parsed text, None if it has errors."""
    with hints_within():
        found = list(islice(_find_all(source, playbook), PROBLEMS_MAX))
    return sorted(found, key=lambda one: (one.line or 0, one.column or 0))


def _find_all(source: str, playbook: Playbook | None) -> Iterator[Problem]:
    found = sections(source)
    yield from _headings(source, found.title)
    names = {one.name for one in playbook.inputs} | _captured_names(playbook.steps) if playbook else set[str]()
    for section in found.sections:
        if section.kind == "step":
            yield from _step(section, playbook, names)
        elif section.kind == "system":
            yield from _find_unfilled(_short(section.body), "the system prompt")


def _step(section: Section, playbook: Playbook | None, names: set[str]) -> Iterator[Problem]:
    body = list(_short(section.body))
    lines = list(_outside_fences(body))
    for look, code in _CODES.items():
        yield from (_problem(code, one) for one in look(lines))
    yield from (_problem("LOST_TEXT", one) for one in near_bodies(body, section.number))
    if playbook is not None:
        booleans = {one.name: BOOLEANS for one in playbook.inputs if one.type == "boolean"}
        conditions = near_conditions(lines, {**_options(playbook), **booleans})
        yield from (_problem("CONDITION_VALUE", one) for one in conditions)
    for line in lines:
        text = line.text.strip()
        if ELICIT.fullmatch(text):
            yield from _find_unfilled([line], "a question")
            continue
        if TOOL.fullmatch(text):
            yield from _variables(line)
        yield from _placeholders(line, names)


def _problem(code: str, near: Near) -> Problem:
    column = near.line.text.find(near.text) + 1
    return Problem(
        code, near.message, line=near.line.number, column=max(column, 1), expected=near.expected, severity="warning"
    )


def _short(lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if len(line.text) <= LINE_CHARS_MAX)


def _outside_fences(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines outside of fenced code; the marker of a branch is not a fence."""
    fenced = False
    for line in lines:
        text = line.text.strip()
        opens = text.startswith("```") and not text.endswith("```") and "`" not in text.lstrip("`")
        if fenced:
            fenced = text != "```"
        elif text == "```" or (opens and not near_fence(line)):
            fenced = True
        else:
            yield line


def near_fence(line: Line) -> bool:
    """Whether a line that resembles the beginning of a fence is a marker, or probably meant as one."""
    return is_marker(line.text.strip()) or any(True for _ in near_markers([line]))


# -- headings ----------------------------------------------------------------------------------------------------------


def _headings(source: str, title: str) -> Iterator[Problem]:
    lines = plain_text(source).split("\n")
    for line in _outside_fences(_short(Line(number, text) for number, text in enumerate(lines, 1))):
        if not line.text.lstrip().startswith("#") or heading(line.text, 1) == title:
            continue
        if found := _STEP.fullmatch(line.text.strip()):
            yield from _step_heading(line, *found.groups())
        elif headed := heading(line.text, 2):
            yield from _section_heading(line, headed)


def _step_heading(line: Line, level: str, number: str, letter: str | None, title: str) -> Iterator[Problem]:
    proper = STEP.fullmatch(heading(line.text, 2) or "") or SUB_STEP.fullmatch(heading(line.text, 3) or "")
    # A heading of a lower level without a letter is part of a prompt.
    if proper or len(level) > (3 if letter else 2):
        return
    marks, label = ("###", f"{number}{letter.lower()}") if letter else ("##", number)
    expected = f"{marks} STEP {label}: {title.strip() or 'Title'}"
    place = "its text is not part of any step" if len(level) == 2 else "it stays in the text around it"
    message = f"{line.text.strip()!r} is not read as the heading of a step, and {place}"
    yield _problem("NEAR_HEADING", Near(line, line.text.strip(), message, expected))


def _section_heading(line: Line, headed: str) -> Iterator[Problem]:
    name = headed.strip(" :").upper()
    if headed.upper() in SECTIONS:
        return
    meant = name if name in SECTIONS else did_you_mean(name, SECTIONS)
    if meant:
        message = f"{line.text.strip()!r} is not a section of a playbook, and its text is not used"
        yield _problem("NEAR_HEADING", Near(line, line.text.strip(), message, f"## {meant}"))


# -- placeholders ------------------------------------------------------------------------------------------------------


def _find_unfilled(lines: Iterable[Line], where: str) -> Iterator[Problem]:
    for line in lines:
        if match := PLACEHOLDER.search(line.text) or _BRACES.search(line.text):
            message = f"{match[0]!r} is passed on as it is written: placeholders are not filled in in {where}"
            expected = "the value in the text of a step"
            yield _problem("UNFILLED_PLACEHOLDER", Near(line, match[0], message, expected))


def _variables(line: Line) -> Iterator[Problem]:
    if found := next(find_references(line.text), None):
        message = f"{found.text!r} is passed on as it is written: variables are filled in in connections only"
        expected = f"an input, such as {{{{{(found.name or 'name').lower()}}}}}, or the connection's own"
        yield _problem("UNFILLED_VARIABLE", Near(line, found.text, message, expected))


def _placeholders(line: Line, names: set[str]) -> Iterator[Problem]:
    """Yield texts in braces that are not placeholders, but resemble one of a known name."""
    for match in _BRACES.finditer(line.text):
        if PLACEHOLDER.fullmatch(match[0]):
            continue
        name = re.sub(r"[\W_]+", "_", match[1])
        meant = next((one for one in (match[1], name, match[1].partition(".")[0]) if one in names), None)
        if meant:
            message = f"{match[0]!r} is not a placeholder and stays as it is written"
            yield _problem("UNFILLED_PLACEHOLDER", Near(line, match[0], message, f"{{{{{meant}}}}}"))


# -- known names -------------------------------------------------------------------------------------------------------


def _all(steps: Iterable[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        for branch in step.branches:
            yield from branch.steps


def _captured_names(steps: Iterable[Step]) -> set[str]:
    return {one.output_var for one in _all(steps) if one.output_var}


def _options(playbook: Playbook) -> dict[str, list[str]]:
    """Return the possible values of the names that have a limited set of them: enums, answers to closed questions."""
    found: dict[str, list[str]] = {}
    open_names: set[str] = set()

    def declare(name: str, options: list[str]) -> None:
        if options:
            found.setdefault(name, []).extend(one for one in options if one not in found.get(name, []))
        else:
            open_names.add(name)

    for step in _all(playbook.steps):
        asked = _answers(step.elicitation) if step.elicitation and step.tool_call is None else []
        if step.elicitation and step.tool_call is None:
            declare(f"{ELICITED}{step.number}", asked)
        if step.output_var:
            only_asks = bool(step.elicitation) and not (step.content or step.prompt_ref or step.branches)
            typed = step.output_options if step.output_type == "enum" and not step.extract_field else []
            declare(step.output_var, typed or (asked if only_asks else []))
    for one in playbook.inputs:
        # An input takes precedence over an output of the same name.
        open_names.discard(one.name)
        found.pop(one.name, None)
        declare(one.name, one.options if one.type == "enum" else [])
    return {name: options for name, options in found.items() if name not in open_names}


def _answers(asked: Elicitation) -> list[str]:
    return ["yes", "no"] if asked.type == "confirm" else asked.options if asked.type == "select" else []


# -- connections of a start --------------------------------------------------------------------------------------------


def near_connections(connections: Mapping[str, JSON]) -> Iterator[Problem]:
    """Warn of references in a start's connections that are not replaced with a variable's value."""
    for name, source in connections.items():
        if not isinstance(source, dict) or source.get("type") != "mcp":
            continue
        env: Any = source.get("env")
        headers: Any = source.get("headers")
        for key, text in env.items() if isinstance(env, dict) else ():
            if isinstance(text, str) and (one := next(find_references(text), None)):
                message = f"{one.text!r} is read as the name of a variable of the worker"
                yield _of_start(f"{name}.env.{key}", message, one.name or "NAME")
        for key, text in headers.items() if isinstance(headers, dict) else ():
            odd = (
                (one for one in find_references(text) if not REFERENCE.fullmatch(one.text))
                if isinstance(text, str)
                else ()
            )
            for one in odd:
                message = f"{one.text!r} is sent as it is written: variables are filled in as ${{NAME}}"
                yield _of_start(f"{name}.headers.{key}", message, f"${{{one.name or 'NAME'}}}")


def _of_start(where: str, message: str, expected: str) -> Problem:
    return Problem("UNFILLED_VARIABLE", message, f"options.connections.{where}", expected=expected, severity="warning")
