"""Near misses of branches: misspelt markers, blocks that are joined, text that is lost, conditions that never hold."""

import re
from collections.abc import Iterator, Mapping, Sequence

from callboard.languages.playbook.branches import split
from callboard.languages.playbook.given import BOOLEANS
from callboard.languages.playbook.near_directives import Near, is_directive
from callboard.languages.playbook.patterns import ELSE, ENDIF, IF, SUB_STEP, heading
from callboard.languages.playbook.sections import Line
from callboard.languages.problems import hint_at

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
