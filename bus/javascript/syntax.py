"""Regular expressions of JavaScript as trees: `parser` makes them of their source, `program` compiles them."""

from dataclasses import dataclass

Range = tuple[int, int]
"""First and last of a range of code points."""


class BadPattern(Exception):
    """The text is no regular expression, or one beyond our bounds."""


@dataclass(frozen=True, slots=True)
class Chars:
    """Any one character of the ranges, or (negated) outside them."""

    ranges: tuple[Range, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    items: "tuple[Pattern, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    branches: "tuple[Pattern, ...]"


@dataclass(frozen=True, slots=True)
class Capture:
    number: int
    body: "Pattern"


@dataclass(frozen=True, slots=True)
class Repeat:
    """``most`` None is unbounded. ``captures`` are the numbers, first to behind last, of the groups inside."""

    body: "Pattern"
    least: int
    most: int | None
    greedy: bool
    captures: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Assertion:
    """``start``, ``end``, ``boundary`` or ``inside`` (no boundary)."""

    kind: str


@dataclass(frozen=True, slots=True)
class Look:
    body: "Pattern"
    behind: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Back:
    """What group ``number`` matched; one that has not matched is empty."""

    number: int


Pattern = Chars | Sequence | Either | Capture | Repeat | Assertion | Look | Back
