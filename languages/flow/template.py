"""Templates: a field's value as the definition writes it, with its expressions compiled, ready to be evaluated.

A string that is one ``{{ … }}`` is an expression, and so is each such leaf of an object or array; keys never are
(specification: *Expressions*, the embedding). What an expression reads is a `Scope`.
"""

from collections.abc import Callable
from typing import Any, Protocol

from callboard.languages.cel import program
from callboard.languages.cel.budget import Budget
from callboard.languages.cel.errors import CelSyntaxError, EvaluationError, Unrepresentable
from callboard.languages.cel.template_strings import expression_body
from callboard.languages.flow.depth import excess
from callboard.languages.flow.result import Fault, failure
from callboard.languages.language import Instant
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import TooManySteps

EXPRESSION_SHOWN_CHARS_MAX = 200


class Scope:
    """What the expressions of one construct execution read: the binding roots, and its clock."""

    __slots__ = ("_read", "_readings", "_wall", "pin", "roots")

    def __init__(self, roots: dict[str, JSON], pin: Instant, wall: Callable[[], Instant]) -> None:
        self.roots = roots
        self.pin = pin
        self._wall = wall
        self._readings: list[Instant] = []
        self._read = 0

    def now(self) -> Instant:
        """The construct's entry instant, the same however often it is asked."""
        return self.pin

    def wall_time(self) -> Instant:
        """Read the clock afresh. What is evaluated again from a `mark` finds the readings that it found before."""
        if self._read == len(self._readings):
            self._readings.append(self._wall())
        self._read += 1
        return self._readings[self._read - 1]

    def mark(self) -> int:
        """Return how often the clock has been read, for `rewind`."""
        return self._read

    def rewind(self, mark: int) -> None:
        """Begin an evaluation again that began when `mark` was called."""
        self._read = mark

    def having(self, **roots: JSON) -> "Scope":
        """The same construct further on: with these roots set."""
        return Scope({**self.roots, **roots}, self.pin, self._wall)


class Template(Protocol):
    """A field's value."""

    def evaluate(self, scope: Scope, budget: Budget | None = None) -> JSON:
        """Return the field's value. Its expressions share a budget, with those of other fields if one is given.

        :raises Fault: ``System.ExpressionEvaluationError`` or ``System.UnrepresentableValue``
        """
        ...


class Literal:
    """A value without any expression in it."""

    __slots__ = ("value",)

    def __init__(self, value: JSON) -> None:
        self.value = value

    def evaluate(self, scope: Scope, budget: Budget | None = None) -> JSON:
        return self.value


class Expression:
    """One expression."""

    __slots__ = ("_program", "source")

    def __init__(self, source: str) -> None:
        self.source = source.strip()
        self._program: program.Program | CelSyntaxError
        try:
            self._program = program.compile(source)
        except CelSyntaxError as error:
            # Documents with such an expression are refused; one inside a value that is data elsewhere may remain.
            self._program = error

    def evaluate(self, scope: Scope, budget: Budget | None = None) -> JSON:
        budget = budget or Budget()
        try:
            if isinstance(self._program, CelSyntaxError):
                raise EvaluationError(str(self._program))
            value = self._program.evaluate(scope.roots, scope, budget)
        except EvaluationError as error:
            raise Fault(self._failure_of("System.ExpressionEvaluationError", error)) from error
        except Unrepresentable as error:
            raise Fault(self._failure_of("System.UnrepresentableValue", error)) from error
        return _bound_value(value, budget)

    def _failure_of(self, code: str, error: Exception) -> dict[str, Any]:
        source = self.source
        shown = source if len(source) <= EXPRESSION_SHOWN_CHARS_MAX else source[:EXPRESSION_SHOWN_CHARS_MAX] + "…"
        return failure(code, str(error), details={"expression": shown})


class ObjectTemplate:
    """An object with an expression somewhere in it."""

    __slots__ = ("members",)

    def __init__(self, members: dict[str, Template]) -> None:
        self.members = members

    def evaluate(self, scope: Scope, budget: Budget | None = None) -> JSON:
        return {name: member.evaluate(scope, budget) for name, member in self.members.items()}


class ArrayTemplate:
    """An array with an expression somewhere in it."""

    __slots__ = ("items",)

    def __init__(self, items: list[Template]) -> None:
        self.items = items

    def evaluate(self, scope: Scope, budget: Budget | None = None) -> JSON:
        return [item.evaluate(scope, budget) for item in self.items]


class Built:
    """An object or array with an expression somewhere in it, as a whole."""

    __slots__ = ("made",)

    def __init__(self, made: ObjectTemplate | ArrayTemplate) -> None:
        self.made = made

    def evaluate(self, scope: Scope, budget: Budget | None = None) -> JSON:
        budget = budget or Budget()
        return _bound_value(self.made.evaluate(scope, budget), budget)


def _bound_value(value: JSON, budget: Budget) -> JSON:
    try:
        too_much = excess(value, budget)
    except TooManySteps as given_up:
        too_much = str(given_up)
    if too_much is not None:
        raise Fault(failure("System.ExpressionEvaluationError", f"the value {too_much}"))
    return value


def template(value: JSON) -> Template:
    """Compile a field's value."""
    made = _template(value)
    return Built(made) if isinstance(made, ObjectTemplate | ArrayTemplate) else made


def extract_literals(found: Template) -> JSON:
    """Return a field's value as far as it is written out: None is in the place of each expression."""
    match found:
        case Literal():
            return found.value
        case Built():
            return extract_literals(found.made)
        case ObjectTemplate():
            return {name: extract_literals(member) for name, member in found.members.items()}
        case ArrayTemplate():
            return [extract_literals(item) for item in found.items]
        case _:
            return None


def _template(value: JSON) -> Template:
    match value:
        case str():
            body = expression_body(value)
            return Literal(value) if body is None else Expression(body)
        case dict():
            members = {name: _template(member) for name, member in value.items()}
            return Literal(value) if all(map(_is_literal, members.values())) else ObjectTemplate(members)
        case list():
            items = [_template(item) for item in value]
            return Literal(value) if all(map(_is_literal, items)) else ArrayTemplate(items)
        case _:
            return Literal(value)


def _is_literal(found: Template) -> bool:
    return isinstance(found, Literal)
