"""Regular expressions of JavaScript as trees: `parser` makes them of their source, `program` compiles them."""

from msgspec import Struct

Range = tuple[int, int]
"""First and last of a range of code points."""


class BadPattern(Exception):
    """The text is no regular expression, or one beyond our bounds."""


class Chars(Struct, frozen=True):
    """Any one character of the ranges, or (negated) outside them."""

    ranges: tuple[Range, ...]
    negated: bool = False


class Sequence(Struct, frozen=True):
    items: "tuple[Pattern, ...]"


class Either(Struct, frozen=True):
    branches: "tuple[Pattern, ...]"


class Capture(Struct, frozen=True):
    number: int
    body: "Pattern"


class Repeat(Struct, frozen=True):
    """``most`` None is unbounded. ``captures`` are the numbers, first to behind last, of the groups inside."""

    body: "Pattern"
    least: int
    most: int | None
    greedy: bool
    captures: tuple[int, int]


class Assertion(Struct, frozen=True):
    """``start``, ``end``, ``boundary`` or ``inside`` (no boundary)."""

    kind: str


class Look(Struct, frozen=True):
    body: "Pattern"
    behind: bool
    negated: bool


class Back(Struct, frozen=True):
    """What group ``number`` matched; one that has not matched is empty."""

    number: int


Pattern = Chars | Sequence | Either | Capture | Repeat | Assertion | Look | Back
