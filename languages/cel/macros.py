"""The macros: calls that have special syntax, recognised by name, receiver and number of arguments."""

from collections.abc import Callable

from callboard.languages.cel.errors import CelSyntaxError
from callboard.languages.cel.syntax import Call, Comprehension, Has, MacroName, Name, Node, Select

_MACROS: dict[tuple[str, int], MacroName] = {
    ("all", 2): "all",
    ("exists", 2): "exists",
    ("exists_one", 2): "exists_one",
    ("existsOne", 2): "exists_one",
    ("map", 2): "map",
    ("map", 3): "map",
    ("filter", 2): "filter",
    ("sortBy", 2): "sortBy",
}
_EXTREMES = ("greatest", "least")

Refuse = Callable[[str, int], CelSyntaxError]
"""Takes a message and an offset of the expression; returns the error."""


def expand_macro(call: Call, refuse: Refuse) -> Node:
    """Return the node that a macro call means, or the call itself if it is not a macro.

    :raises CelSyntaxError: if the arguments do not have the macro's form; ``refuse`` makes the error
    """
    arguments, target = call.arguments, call.target
    if target is None:
        return _expand_has(call, refuse) if call.function == "has" and len(arguments) == 1 else call
    if call.function in _EXTREMES and isinstance(target, Name) and target.name == "math" and not arguments:
        raise refuse(f"math.{call.function}() needs at least one number", call.at)
    macro = _MACROS.get((call.function, len(arguments)))
    if macro is None:
        return call
    variable = arguments[0]
    if not isinstance(variable, Name) or variable.absolute:
        raise refuse(f"the first argument of {call.function}() must be a simple name: it is the variable", variable.at)
    condition = arguments[1] if len(arguments) == 3 else None
    return Comprehension(call.at, macro, target, variable.name, condition, arguments[-1])


def _expand_has(call: Call, refuse: Refuse) -> Node:
    field = call.arguments[0]
    if not isinstance(field, Select):
        raise refuse("has() looks for a member: write it like has(vars.name)", call.arguments[0].at)
    return Has(call.at, field.operand, field.field)
