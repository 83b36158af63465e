"""The relations as closures, with short ways for comparing with something written out."""

from collections.abc import Callable

from callboard.languages.cel.comparison import RELATIONS
from callboard.languages.cel.scope import BUDGET, Run, Scope
from callboard.languages.cel.syntax import ListOf, Literal, Node
from callboard.languages.cel.values import NUMBERS, Value

_NUMERIC: dict[str, Callable[[Value, Value], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def relation(symbol: str, left: Run, right: Run, right_node: Node) -> Run:
    """Make the closure of ``left symbol right``."""
    if isinstance(right_node, Literal):
        constant = right_node.value
        if symbol in ("==", "!="):
            return _equal_to(left, constant, wanted=symbol == "==")
        if symbol in _NUMERIC and type(constant) in NUMBERS:
            return _against_number(symbol, left, constant)
    if symbol == "in" and isinstance(right_node, ListOf):
        texts = [item.value for item in right_node.items if isinstance(item, Literal) and type(item.value) is str]
        if len(texts) == len(right_node.items):
            return _among(left, frozenset(texts))
    compare = RELATIONS[symbol]
    return lambda scope: compare(left(scope), right(scope), scope[BUDGET])


def _equal_to(left: Run, constant: Value, *, wanted: bool) -> Run:
    """Compare with a constant. Only a number may equal a value of another type, and no number equals True or False."""
    if type(constant) in NUMBERS:

        def run(scope: Scope) -> bool:
            value = left(scope)
            return (type(value) is not bool and value == constant) is wanted

        return run
    if type(constant) is bool or constant is None:
        return lambda scope: (left(scope) is constant) is wanted
    return lambda scope: (left(scope) == constant) is wanted


def _against_number(symbol: str, left: Run, constant: Value) -> Run:
    compare, checked = _NUMERIC[symbol], RELATIONS[symbol]

    def run(scope: Scope) -> bool:
        value = left(scope)
        return compare(value, constant) if type(value) in NUMBERS else checked(value, constant, scope[BUDGET])

    return run


def _among(left: Run, texts: frozenset[str]) -> Run:
    def run(scope: Scope) -> bool:
        value = left(scope)
        return type(value) is str and value in texts

    return run
