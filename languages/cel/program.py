"""Compiled expressions: the entry point of this engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.compiler import Compiler
from callboard.languages.cel.errors import CelSyntaxError, EvaluationError
from callboard.languages.cel.json_data import to_data
from callboard.languages.cel.parser import parse
from callboard.languages.cel.scope import Clock, Run
from callboard.languages.cel.syntax import Node
from callboard.languages.cel.values import Value
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import TooManySteps

__all__ = ["CelProgram", "Clock", "EvaluationBudget", "compile"]


PROGRAMS_KEPT_MAX = 2_048
"""How many compiled expressions are cached, because checks and runs of a definition compile the same ones."""


@dataclass(frozen=True, slots=True)
class CelProgram:
    """A compiled expression. Evaluations share no state."""

    source: str
    tree: Node = field(repr=False)
    roots: frozenset[str]
    """The names of the bindings that the expression mentions."""
    unknown_functions: frozenset[str]
    """The functions it calls that do not exist; calling one is an evaluation error."""
    _run: Run = field(repr=False)
    _slots: int = field(repr=False)
    _weight: int = field(repr=False)
    """The steps of its nodes, each counted once."""

    def evaluate(self, bindings: Mapping[str, JSON], clock: Clock, budget: EvaluationBudget | None = None) -> JSON:
        """Evaluate against bindings of plain JSON data: dict, list, str, int, float, bool and None, without subclasses.

        The result is data too; parts of the bindings in it are not copied. Expressions that are evaluated together may
        share a budget.

        :raises EvaluationError: if the expression has no value
        :raises Unrepresentable: if its value cannot be data
        """
        budget = budget or EvaluationBudget()
        value = self.value(bindings, clock, budget)
        try:
            return to_data(value, budget)
        except TooManySteps as given_up:
            raise EvaluationError(f"the expression {given_up}") from None
        except RecursionError:
            raise EvaluationError("the value is nested too deep") from None

    def value(self, bindings: Mapping[str, JSON], clock: Clock, budget: EvaluationBudget | None = None) -> Value:
        """Evaluate to a CEL value, without the conversion to data, which a predicate does not need.

        :raises EvaluationError: if the expression has no value
        """
        budget = budget or EvaluationBudget()
        try:
            budget.take(self._weight)
            return self._run([bindings, clock, budget, *(None,) * self._slots])
        except TooManySteps as given_up:
            raise EvaluationError(f"the expression {given_up}") from None
        except RecursionError:
            raise EvaluationError("the values are nested too deep") from None


@lru_cache(PROGRAMS_KEPT_MAX)
def compile(source: str) -> CelProgram:
    """Compile an expression; ``source`` has no delimiters.

    :raises CelSyntaxError: if the text is not an expression
    """
    compiler = Compiler()
    try:
        tree = parse(source)
        run = compiler.compile(tree)
    except RecursionError:
        raise CelSyntaxError("the expression is nested too deep", 1, 1) from None
    names = frozenset(compiler.roots), frozenset(compiler.unknown_functions)
    return CelProgram(source, tree, *names, run, compiler.slots, compiler.weight)
