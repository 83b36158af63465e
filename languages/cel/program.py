"""An expression, compiled: the door to this engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from callboard.bus.effects import JSON
from callboard.languages.cel.compiler import Compiler
from callboard.languages.cel.convert import to_data
from callboard.languages.cel.errors import CelSyntaxError, EvaluationError, Exhausted
from callboard.languages.cel.parser import parse
from callboard.languages.cel.scope import Clock, Run
from callboard.languages.cel.values import ITERATIONS_MAX, Value

__all__ = ["Clock", "Program", "compile"]


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. It keeps nothing from one evaluation to the next."""

    source: str
    roots: frozenset[str]
    """The names that must be bound, whichever way the evaluation goes."""
    unknown_functions: frozenset[str]
    """Functions it calls that do not exist: a call of one is an evaluation error."""
    _run: Run = field(repr=False)
    _slots: int = field(repr=False)

    def evaluate(self, bindings: Mapping[str, JSON], clock: Clock) -> JSON:
        """Evaluate against bindings of plain JSON data: dict, list, str, int, float, bool and None, no subclasses.

        The result is data again; parts of the bindings that pass through are not copied.

        :raises EvaluationError: if there is no value
        :raises Unrepresentable: if the value has no form as data
        """
        try:
            return to_data(self.value(bindings, clock))
        except RecursionError:
            raise EvaluationError("the value is nested too deep") from None

    def value(self, bindings: Mapping[str, JSON], clock: Clock) -> Value:
        """Evaluate likewise, to the value as CEL has it: a predicate needs no more than whether it is True.

        :raises EvaluationError: if there is none
        """
        try:
            return self._run([bindings, clock, ITERATIONS_MAX, *(None,) * self._slots])
        except Exhausted as exhausted:
            raise EvaluationError(exhausted.message) from None
        except RecursionError:
            raise EvaluationError("the values are nested too deep") from None


def compile(source: str) -> Program:
    """Compile an expression, without its delimiters.

    :raises CelSyntaxError: if the text is no expression
    """
    compiler = Compiler()
    try:
        run = compiler.compile(parse(source))
    except RecursionError:
        raise CelSyntaxError("the expression is nested too deep", 1, 1) from None
    return Program(source, frozenset(compiler.roots), frozenset(compiler.unknown_functions), run, compiler.slots)
