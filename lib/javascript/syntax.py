"""JavaScript regular expressions as trees. `parser` parses their source, `regex` compiles them."""

from msgspec import Struct

Range = tuple[int, int]
"""First and last of a range of code points."""


class InvalidRegex(Exception):
    """The text is not a regular expression, or exceeds our limits."""


class Chars(Struct, frozen=True):
    """One character inside the ranges, or (negated) outside them."""

    ranges: tuple[Range, ...]
    negated: bool = False


class Sequence(Struct, frozen=True):
    items: "tuple[Pattern, ...]"


class Alternation(Struct, frozen=True):
    branches: "tuple[Pattern, ...]"


class Capture(Struct, frozen=True):
    number: int
    body: "Pattern"


class Repeat(Struct, frozen=True):
    """``most`` None means no limit. ``captures`` are the first group inside and the first group after it."""

    body: "Pattern"
    least: int
    most: int | None
    greedy: bool
    captures: tuple[int, int]


class Assertion(Struct, frozen=True):
    """``start``, ``end``, ``boundary`` or ``inside`` (not a boundary)."""

    kind: str


class Look(Struct, frozen=True):
    body: "Pattern"
    behind: bool
    negated: bool


class Back(Struct, frozen=True):
    """The text that group ``number`` matched; the empty text if it has not matched."""

    number: int


Pattern = Chars | Sequence | Alternation | Capture | Repeat | Assertion | Look | Back
