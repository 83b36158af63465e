"""Templates: the values of fields as the definition writes them, with compiled expressions.

A string that consists of one ``{{ … }}`` is an expression, also inside objects and arrays; keys are never expressions
(specification: *Expressions*, the embedding). Expressions read from a `ExpressionScope`.
"""

from collections.abc import Callable
from typing import Any, Protocol

from callboard.languages.cel import program
from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.errors import CelSyntaxError, EvaluationError, Unrepresentable
from callboard.languages.cel.template_strings import expression_body
from callboard.languages.flow.depth import find_excess
from callboard.languages.flow.result import Fault, failure
from callboard.languages.language import Instant
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import TooManySteps

EXPRESSION_SHOWN_CHARS_MAX = 200


class ExpressionScope:
    """The scope of one execution of a construct: the roots that its expressions read, and its clock."""

    __slots__ = ("_read", "_readings", "_wall", "pin", "roots")

    def __init__(self, roots: dict[str, JSON], pin: Instant, wall: Callable[[], Instant]) -> None:
        self.roots = roots
        self.pin = pin
        self._wall = wall
        self._readings: list[Instant] = []
        self._read = 0

    def now(self) -> Instant:
        """Return the instant at which the construct was entered."""
        return self.pin

    def wall_time(self) -> Instant:
        """Return the actual time. After `rewind`, an evaluation gets the same readings again."""
        if self._read == len(self._readings):
            self._readings.append(self._wall())
        self._read += 1
        return self._readings[self._read - 1]

    def mark(self) -> int:
        """Return how often the clock has been read, for `rewind`."""
        return self._read

    def rewind(self, mark: int) -> None:
        """Repeat the clock readings since `mark` was called."""
        self._read = mark

    def having(self, **roots: JSON) -> "ExpressionScope":
        """Return a scope of the same construct in which these roots are replaced."""
        return ExpressionScope({**self.roots, **roots}, self.pin, self._wall)


class Template(Protocol):
    """A field's value."""

    def evaluate(self, scope: ExpressionScope, budget: EvaluationBudget | None = None) -> JSON:
        """Return the field's value. Its expressions share one budget, which other fields may share too.

        :raises Fault: ``System.ExpressionEvaluationError`` or ``System.UnrepresentableValue``
        """
        ...


class LiteralTemplate:
    """A value without any expression in it."""

    __slots__ = ("value",)

    def __init__(self, value: JSON) -> None:
        self.value = value

    def evaluate(self, scope: ExpressionScope, budget: EvaluationBudget | None = None) -> JSON:
        return self.value


class Expression:
    """One expression."""

    __slots__ = ("_program", "source")

    def __init__(self, source: str) -> None:
        self.source = source.strip()
        self._program: program.CelProgram | CelSyntaxError
        try:
            self._program = program.compile(source)
        except CelSyntaxError as error:
            # Documents with such an expression are refused, except inside values that are data for another language.
            self._program = error

    def evaluate(self, scope: ExpressionScope, budget: EvaluationBudget | None = None) -> JSON:
        budget = budget or EvaluationBudget()
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

    def evaluate(self, scope: ExpressionScope, budget: EvaluationBudget | None = None) -> JSON:
        return {name: member.evaluate(scope, budget) for name, member in self.members.items()}


class ArrayTemplate:
    """An array with an expression somewhere in it."""

    __slots__ = ("items",)

    def __init__(self, items: list[Template]) -> None:
        self.items = items

    def evaluate(self, scope: ExpressionScope, budget: EvaluationBudget | None = None) -> JSON:
        return [item.evaluate(scope, budget) for item in self.items]


class CompositeTemplate:
    """A whole field whose value is an object or array with expressions."""

    __slots__ = ("made",)

    def __init__(self, made: ObjectTemplate | ArrayTemplate) -> None:
        self.made = made

    def evaluate(self, scope: ExpressionScope, budget: EvaluationBudget | None = None) -> JSON:
        budget = budget or EvaluationBudget()
        return _bound_value(self.made.evaluate(scope, budget), budget)


def _bound_value(value: JSON, budget: EvaluationBudget) -> JSON:
    try:
        too_much = find_excess(value, budget)
    except TooManySteps as given_up:
        too_much = str(given_up)
    if too_much is not None:
        raise Fault(failure("System.ExpressionEvaluationError", f"the value {too_much}"))
    return value


def compile_template(value: JSON) -> Template:
    """Compile a field's value."""
    made = _compile_template(value)
    return CompositeTemplate(made) if isinstance(made, ObjectTemplate | ArrayTemplate) else made


def extract_literals(found: Template) -> JSON:
    """Return a field's value with None in place of each expression."""
    match found:
        case LiteralTemplate():
            return found.value
        case CompositeTemplate():
            return extract_literals(found.made)
        case ObjectTemplate():
            return {name: extract_literals(member) for name, member in found.members.items()}
        case ArrayTemplate():
            return [extract_literals(item) for item in found.items]
        case _:
            return None


def _compile_template(value: JSON) -> Template:
    match value:
        case str():
            body = expression_body(value)
            return LiteralTemplate(value) if body is None else Expression(body)
        case dict():
            members = {name: _compile_template(member) for name, member in value.items()}
            return LiteralTemplate(value) if all(map(_is_literal, members.values())) else ObjectTemplate(members)
        case list():
            items = [_compile_template(item) for item in value]
            return LiteralTemplate(value) if all(map(_is_literal, items)) else ArrayTemplate(items)
        case _:
            return LiteralTemplate(value)


def _is_literal(found: Template) -> bool:
    return isinstance(found, LiteralTemplate)
