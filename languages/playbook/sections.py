"""The lines and sections of a playbook's text. Every heading in column one counts, even in fenced code."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct, field

from callboard.languages.playbook.patterns import ARTIFACTS, INPUTS, STEP, SYSTEM, heading
from callboard.lib.text_bytes import plain_text

Kind = Literal["system", "inputs", "artifacts", "step", "unknown"]


class Line(NamedTuple):
    """A line of the text with its number, from 1."""

    number: int
    text: str


class Section(Struct, frozen=True):
    """A level-2 heading with the lines below it; ``number`` and ``title`` are a step's."""

    kind: Kind
    line: int
    number: int = 0
    title: str = ""
    body: list[Line] = field(default_factory=list[Line])


class Sections(Struct, frozen=True):
    """The parts of a text; ``title`` is empty if the text has none."""

    title: str
    description: str
    sections: list[Section]

    def of(self, kind: Kind) -> Iterator[Section]:
        """Yield the sections of a kind, in their order."""
        return (section for section in self.sections if section.kind == kind)


def sections(text: str) -> Sections:
    """Split a text into its sections. Text before the title that is not in a section is dropped."""
    title = ""
    description: list[Line] = []
    found: list[Section] = []
    for number, line in enumerate(_lines(text), 1):
        if not title and (named := heading(line, 1)):
            title = named
        elif (headed := heading(line, 2)) is not None:
            found.append(_section(headed, number))
        elif found:
            found[-1].body.append(Line(number, line))
        elif title:
            description.append(Line(number, line))
    return Sections(title, join_lines(description), found)


def join_lines(lines: list[Line]) -> str:
    """Return lines as one text, without outer blanks."""
    return "\n".join(line.text for line in lines).strip()


def _lines(text: str) -> list[str]:
    # Not `str.splitlines`, which ends lines at more than line ends.
    return plain_text(text).split("\n")


def _section(headed: str, line: int) -> Section:
    if step := STEP.fullmatch(headed):
        return Section("step", line, int(step[1]), step[2].strip())
    if SYSTEM.fullmatch(headed):
        return Section("system", line)
    if INPUTS.fullmatch(headed):
        return Section("inputs", line)
    return Section("artifacts" if ARTIFACTS.fullmatch(headed) else "unknown", line)
