"""The budget of one piece of a node's work: steps of expressions, templates and runners, and characters of text.

A step is roughly the evaluation of one node of an expression. The same work takes the same number of steps on every
machine, so a replay exceeds the budget exactly where the run did.
"""

from collections.abc import Mapping
from typing import Any

from callboard.lib.json_types import JSON
from callboard.lib.patterns import Patterns
from callboard.lib.step_limits import CHARS_PER_STEP, Steps, TooManySteps

STEPS_MAX = 20_000_000
"""How many steps one piece of work may take, such as a whole DATA_TRANSFORMATION: some tens of seconds."""

CHARS_MAX = 32_000_000
"""How many characters one piece of work may write: templates with their values, and values as text."""

PARSED_CHARS_PER_STEP = 4
"""How many characters of an expression the parser reads in one step."""

SCANNED_MAX = 16
"""The longest list whose items are compared one by one; a longer list is hashed once."""


class WorkTooLong(Exception):
    """A piece of work writes more than `CHARS_MAX` characters."""


class WorkBudget(Steps):
    """The steps of one piece of work."""

    __slots__ = ("_chars_left", "_folded", "_identities", "patterns")

    def __init__(self, steps_max: int = STEPS_MAX, chars_max: int = CHARS_MAX) -> None:
        super().__init__(steps_max)
        self.patterns = Patterns(self)
        self._chars_left = chars_max
        # The list or object is kept with its entry, so that no other one can get the same id.
        self._identities: dict[int, tuple[list[JSON], set[Any] | None]] = {}
        self._folded: dict[int, tuple[Mapping[str, JSON], dict[str, str]]] = {}

    def take_written(self, chars: int) -> None:
        """Count characters of text that the work writes.

        :raises WorkTooLong: if the work has written more than it may
        :raises TooManySteps: if the work has taken more steps than it may
        """
        self.take_text(chars)
        self._chars_left -= chars
        if self._chars_left < 0:
            raise WorkTooLong

    def take_parsed(self, text: str) -> None:
        """Count the steps of parsing an expression, also if this process has its parsed form in its cache.

        :raises TooManySteps: if the work has taken more steps than it may
        """
        self.take(1 + len(text) // PARSED_CHARS_PER_STEP)

    def is_among(self, value: JSON, items: list[JSON]) -> bool:
        """Whether a list has an item that is equal to a value. From the second question on, the list is hashed."""
        wanted, found = self.identity(value), self._identities.get(id(items))
        if found is None:
            self._identities[id(items)] = items, None
            return any(self.identity(item) == wanted for item in items)
        identities = found[1]
        if identities is None:
            identities = {self.identity(item) for item in items}
            self._identities[id(items)] = items, identities
        return wanted in identities

    def name_in(self, value: Mapping[str, JSON], name: str) -> str | None:
        """Return the first member of an object whose name equals ``name`` apart from case; None if none exists."""
        self.take(1)
        if len(value) <= SCANNED_MAX:
            lowered = name.lower()
            return next((one for one in value if one.lower() == lowered), None)
        found = self._folded.get(id(value))
        if found is None:
            self.take(len(value))
            names: dict[str, str] = {}
            for one in value:
                names.setdefault(one.lower(), one)
            found = self._folded[id(value)] = value, names
        return found[1].get(name.lower())

    def identity(self, value: JSON) -> Any:
        """Return a hashable key that is the same for equal values only: true differs from 1, and 1 equals 1.0."""
        self.take(1)
        match value:
            case bool():
                return "bool", value
            case list():
                return "list", tuple(map(self.identity, value))
            case Mapping():
                return "dict", frozenset(zip(value, map(self.identity, value.values()), strict=True))
            case str():
                self.left -= len(value) // CHARS_PER_STEP
                return value
            case _:
                return value


__all__ = ["TooManySteps", "WorkBudget", "WorkTooLong"]
