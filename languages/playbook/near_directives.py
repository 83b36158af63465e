"""Near misses of directives: lines that resemble a directive and stay in the text, or lose a part."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from callboard.languages.playbook.directives import Directives
from callboard.languages.playbook.patterns import ELICIT, OUTPUT, PROMPT, QUOTED, TOOL
from callboard.languages.playbook.sections import Line
from callboard.languages.problems import did_you_mean

NAMES = ("output", "elicit", "prompt", "tool")

_FORMS = {
    "output": "@output(name)",
    "elicit": '@elicit(confirm, "Question?")',
    "prompt": "@prompt(library:name)",
    "tool": '@tool(connection, tool, {"argument": "value"})',
}

_LIKE = re.compile(r"@\s?(\w+)\s*(?:\((.*)\)|[:\s]\s*(.*))?\s*[.;,]?", re.ASCII)
"""A line that is or resembles a directive: its name, and the text in parentheses or after the name."""

_WITHIN = re.compile(r"(?:[-*+]\s+|.*\s)(@(?:output|elicit|prompt|tool)\(.*\))", re.ASCII)
"""A line that ends with a directive after other text."""

QUOTES = "\"' "

_SINGLE = re.compile(r"'([^'\"]*)'|[“”„]([^“”„\"]*)[“”]")
"""A text in quotes that are not read."""


class Near(NamedTuple):
    """A probable mistake: the line, the text in it, a message, and the form that is probably meant."""

    line: Line
    text: str
    message: str
    expected: str


def near_directives(lines: list[Line]) -> Iterator[Near]:
    """Yield the near misses among the lines of a step."""
    for line in lines:
        text = line.text.strip()
        if text.startswith("@"):
            yield from _of_line(line, text)
        elif "`" not in text and (within := _WITHIN.fullmatch(text)) and Directives().take(Line(0, within[1])):
            message = f"{within[1]!r} stays in the text: a directive needs a separate line"
            yield Near(line, within[1], message, f"{within[1]} on a separate line")


def is_directive(line: Line) -> bool:
    """Whether a line is a valid directive."""
    return line.text.strip().startswith("@") and Directives().take(line)


def _of_line(line: Line, text: str) -> Iterator[Near]:
    match = _LIKE.fullmatch(text)
    name = _name(match[1]) if match else ""
    if match is None or not name:
        return
    inner = next((one for one in (match[2], match[3]) if one is not None), "").strip()
    directives = Directives()
    if not directives.take(line):
        # The parser has warned of a question of an unknown type already.
        if not directives.problems:
            yield Near(line, text, f"{text!r} is not read as a directive and stays in the text", _meant(name, inner))
    elif name == "tool" and "tool_call" not in directives.fields:
        yield Near(
            line, text, f"{text!r} calls nothing: it names no tool, and the line is dropped", _meant(name, inner)
        )
    elif name == "elicit" and (lost := _unread(text)):
        yield Near(line, text, f"{lost!r} is not read: texts need double quotes", _meant(name, inner))


def _name(written: str) -> str:
    """Return the directive that a word names, in any case or misspelt; empty if it names none."""
    word = written.lower()
    return word if word in NAMES else did_you_mean(word, NAMES) or ""


def _unread(text: str) -> str:
    """Return the part of a question's texts that is not read; empty if all of it is."""
    match = ELICIT.fullmatch(text)
    rest = QUOTED.sub("", match[2] or "") if match else ""
    return rest.strip(" ,")


def _meant(name: str, inner: str) -> str:
    """Return the correct form of the directive that is probably meant; a general form if the arguments are unclear."""
    quoted = _SINGLE.sub(lambda match: f'"{match[1] or match[2] or ""}"', inner)
    pattern = {"output": OUTPUT, "elicit": ELICIT, "prompt": PROMPT, "tool": TOOL}[name]
    for tried in (inner, quoted, *(_repair_arguments(name, quoted))):
        made = f"@{name}({tried})"
        read = Directives()
        if pattern.fullmatch(made) and read.take(Line(0, made)) and not _loses(name, made, read):
            return made
    first = re.split(r"[,:\s]", inner.strip("\"'"), maxsplit=1)[0]
    if name == "tool" and first:
        return _FORMS[name].replace("connection", first, 1)
    return _FORMS[name]


def _loses(name: str, made: str, read: Directives) -> bool:
    return (name == "tool" and "tool_call" not in read.fields) or (name == "elicit" and bool(_unread(made)))


def _repair_arguments(name: str, inner: str) -> Iterator[str]:
    """Yield possible corrections of the text in a directive's parentheses."""
    head, comma, rest = inner.partition(",")
    if name == "output":
        variable, colon, kind = head.partition(":")
        proper = re.sub(r"\W+", "_", variable.strip("\"' {}"), flags=re.ASCII).strip("_")
        if proper:
            extracting = re.sub(r"extract\s*[:=]\s*", "extract:", rest)
            yield f"{proper}{colon}{kind}{comma}{extracting}"
            yield f"{proper}: {rest.strip()}"
            yield proper
    elif name == "elicit":
        kind = head.strip("\"' ").lower()
        yield f"{kind}{comma}{rest}"
        texts = [one.strip("\"' ") for one in rest.split(",") if one.strip("\"' ")]
        yield ", ".join([kind, *(f'"{one}"' for one in texts)])
        yield f'input, "{inner.strip(QUOTES)}"'
