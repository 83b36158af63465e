"""An expression, compiled: the door to this engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from callboard.languages.cel.budget import Budget
from callboard.languages.cel.compiler import Compiler
from callboard.languages.cel.errors import CelSyntaxError, EvaluationError
from callboard.languages.cel.json_data import to_data
from callboard.languages.cel.parser import parse
from callboard.languages.cel.scope import Clock, Run
from callboard.languages.cel.syntax import Node
from callboard.languages.cel.values import Value
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import TooManySteps

__all__ = ["Budget", "Clock", "Program", "compile"]


PROGRAMS_KEPT_MAX = 2_048
"""How many compiled expressions are kept: those of a definition are compiled once, and looked at several times."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression. It keeps nothing from one evaluation to the next."""

    source: str
    tree: Node = field(repr=False)
    roots: frozenset[str]
    """The names that must be bound, whichever way the evaluation goes."""
    unknown_functions: frozenset[str]
    """Functions it calls that do not exist: a call of one is an evaluation error."""
    _run: Run = field(repr=False)
    _slots: int = field(repr=False)
    _weight: int = field(repr=False)
    """How many steps its nodes take, each once."""

    def evaluate(self, bindings: Mapping[str, JSON], clock: Clock, budget: Budget | None = None) -> JSON:
        """Evaluate against bindings of plain JSON data: dict, list, str, int, float, bool and None, no subclasses.

        The result is data again; parts of the bindings that pass through are not copied. Expressions that are
        evaluated in one go may share a budget.

        :raises EvaluationError: if there is no value
        :raises Unrepresentable: if the value has no form as data
        """
        budget = budget or Budget()
        value = self.value(bindings, clock, budget)
        try:
            return to_data(value, budget)
        except TooManySteps as given_up:
            raise EvaluationError(f"the expression {given_up}") from None
        except RecursionError:
            raise EvaluationError("the value is nested too deep") from None

    def value(self, bindings: Mapping[str, JSON], clock: Clock, budget: Budget | None = None) -> Value:
        """Evaluate likewise, to the value as CEL has it: a predicate needs no more than whether it is True.

        :raises EvaluationError: if none exists
        """
        budget = budget or Budget()
        try:
            budget.take(self._weight)
            return self._run([bindings, clock, budget, *(None,) * self._slots])
        except TooManySteps as given_up:
            raise EvaluationError(f"the expression {given_up}") from None
        except RecursionError:
            raise EvaluationError("the values are nested too deep") from None


@lru_cache(PROGRAMS_KEPT_MAX)
def compile(source: str) -> Program:
    """Compile an expression, without its delimiters.

    :raises CelSyntaxError: if the text is not an expression
    """
    compiler = Compiler()
    try:
        tree = parse(source)
        run = compiler.compile(tree)
    except RecursionError:
        raise CelSyntaxError("the expression is nested too deep", 1, 1) from None
    names = frozenset(compiler.roots), frozenset(compiler.unknown_functions)
    return Program(source, tree, *names, run, compiler.slots, compiler.weight)
