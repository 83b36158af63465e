"""The closures of an expression's nodes. Each takes a scope and returns a value or raises `EvaluationError`."""

from collections.abc import Callable, Mapping

from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.comparison import RELATIONS
from callboard.languages.cel.comprehensions import not_bool
from callboard.languages.cel.errors import EvaluationError, show_value
from callboard.languages.cel.members import has, index, key_kind, key_value, select, stored_key
from callboard.languages.cel.overloads import Counted, Dispatch, no_overload
from callboard.languages.cel.scope import BINDINGS, BUDGET, Run, Scope
from callboard.languages.cel.syntax import ListOf, Literal, Node
from callboard.languages.cel.values import NUMBERS, CelList, CelMap, TypeValue, Value, double_of

Operate = Callable[[Value, Value, EvaluationBudget], Value]
"""An operator with two operands; it counts its steps."""


def constant(value: Value) -> Run:
    return lambda scope: value


def root(name: str, named_type: TypeValue | None) -> Run:
    def run(scope: Scope) -> Value:
        try:
            value = scope[BINDINGS][name]
        except KeyError:
            if named_type is not None:
                return named_type
            raise EvaluationError(f"there is no {name!r} here; there are: {_list_names(scope[BINDINGS])}") from None
        return double_of(value) if type(value) is int else value

    return run


def _list_names(bindings: Mapping[str, Value]) -> str:
    return ", ".join(sorted(bindings)) or "no variables at all"


def root_member(name: str, field: str) -> Run:
    """Read ``name.field`` in one closure, because most expressions do little else."""
    slow = member(root(name, None), field)

    def run(scope: Scope) -> Value:
        bindings = scope[BINDINGS]
        if name in bindings:
            value = bindings[name]
            if type(value) is dict and field in value:
                found = value[field]
                return double_of(found) if type(found) is int else found
        return slow(scope)

    return run


def member(operand: Run, name: str) -> Run:
    def run(scope: Scope) -> Value:
        value = operand(scope)
        if type(value) is dict and name in value:
            member = value[name]
            return double_of(member) if type(member) is int else member
        return select(value, name)

    return run


def path(operand: Run, fields: list[str]) -> Run:
    """Read a chain of members in one closure, so that a long chain does not nest."""
    *leading, last = fields

    def walk(scope: Scope) -> Value:
        value = operand(scope)
        for name in leading:
            value = value[name] if type(value) is dict and name in value else select(value, name)
        return value

    return member(walk, last)


def presence(operand: Run, name: str) -> Run:
    return lambda scope: has(operand(scope), name)


def invert(value: Value) -> bool:
    if type(value) is bool:
        return not value
    raise EvaluationError(f"'!' negates a bool, not {key_kind(value)}")


def unary(function: Callable[[Value], Value], operand: Run) -> Run:
    return lambda scope: function(operand(scope))


def element(operand: Run, position: Run) -> Run:
    """``operand[position]``"""

    def run(scope: Scope) -> Value:
        value, at = operand(scope), position(scope)
        if type(at) is str:
            scope[BUDGET].take_text(len(at))
        return index(value, at)

    return run


def arithmetic(first: Run, rest: list[tuple[Operate, Run]]) -> Run:
    if len(rest) == 1:
        [(only, second)] = rest
        return lambda scope: only(first(scope), second(scope), scope[BUDGET])

    def run(scope: Scope) -> Value:
        value, budget = first(scope), scope[BUDGET]
        for operate, operand in rest:
            value = operate(value, operand(scope), budget)
        return value

    return run


def logic(operands: list[Run], *, decisive: bool) -> Run:
    """``||`` returns true if any operand is true, ``&&`` false if any is false; otherwise the first error is raised."""

    def run(scope: Scope) -> bool:
        fault: EvaluationError | None = None
        for operand in operands:
            try:
                verdict = operand(scope)
            except EvaluationError as raised:
                fault = fault or raised
                continue
            if verdict is decisive:
                return decisive
            if type(verdict) is not bool:
                fault = fault or not_bool(verdict)
        if fault:
            raise fault
        return not decisive

    return run


def choose(condition: Run, yes: Run, no: Run) -> Run:
    def run(scope: Scope) -> Value:
        verdict = condition(scope)
        if verdict is True:
            return yes(scope)
        if verdict is False:
            return no(scope)
        raise not_bool(verdict)

    return run


def listing(items: list[Run]) -> Run:
    """``[items]``"""
    return lambda scope: CelList([item(scope) for item in items])


def mapping(entries: list[tuple[Run, Run]]) -> Run:
    def run(scope: Scope) -> CelMap:
        made = CelMap()
        for key_run, value_run in entries:
            key = stored_key(key_run(scope))
            if type(key) is str:
                scope[BUDGET].take_text(len(key))
            if key in made:
                raise EvaluationError(f"the map has the key {show_value(key_value(key))} twice")
            made[key] = value_run(scope)
        return made

    return run


def function_call(name: str, overloads: Dispatch, arguments: list[Run], *, member: bool) -> Run:
    """Call the overload for the types of the arguments; a function that does not exist has no overloads."""
    counted = {types: overload.function for types, overload in overloads.items() if isinstance(overload, Counted)}
    plain = {types: overload for types, overload in overloads.items() if not isinstance(overload, Counted)}

    def run(scope: Scope) -> Value:
        values = tuple([argument(scope) for argument in arguments])
        types = tuple([type(value) for value in values])
        if types in plain:
            return plain[types](*values)
        if types in counted:
            return counted[types](scope[BUDGET], *values)
        raise no_overload(name, values, member=member)

    if len(arguments) != 1:
        return run
    only = arguments[0]
    single = {types[0]: overload for types, overload in plain.items()}

    def run_single(scope: Scope) -> Value:
        value = only(scope)
        overload = single.get(type(value))
        if overload is not None:
            return overload(value)
        function = counted.get((type(value),))
        if function is None:
            raise no_overload(name, (value,), member=member)
        return function(scope[BUDGET], value)

    return run_single


# -- relations ---------------------------------------------------------------------------------------------------------


_NUMERIC: dict[str, Callable[[Value, Value], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def relation(symbol: str, left: Run, right: Run, right_node: Node) -> Run:
    """Return the closure of ``left symbol right``; comparisons with literals have faster ones."""
    if isinstance(right_node, Literal):
        literal = right_node.value
        if symbol in ("==", "!="):
            return _equal_to(left, literal, wanted=symbol == "==")
        if symbol in _NUMERIC and type(literal) in NUMBERS:
            return _against_number(symbol, left, literal)
    if symbol == "in" and isinstance(right_node, ListOf):
        texts = [item.value for item in right_node.items if isinstance(item, Literal) and type(item.value) is str]
        if len(texts) == len(right_node.items):
            return _among(left, frozenset(texts))
    compare = RELATIONS[symbol]
    return lambda scope: compare(left(scope), right(scope), scope[BUDGET])


def _equal_to(left: Run, literal: Value, *, wanted: bool) -> Run:
    """Compare with a literal. Only numbers may equal values of other types; no number equals True or False."""
    if type(literal) in NUMBERS:

        def run(scope: Scope) -> bool:
            value = left(scope)
            return (type(value) is not bool and value == literal) is wanted

        return run
    if type(literal) is bool or literal is None:
        return lambda scope: (left(scope) is literal) is wanted
    return lambda scope: (left(scope) == literal) is wanted


def _against_number(symbol: str, left: Run, literal: Value) -> Run:
    compare, checked = _NUMERIC[symbol], RELATIONS[symbol]

    def run(scope: Scope) -> bool:
        value = left(scope)
        return compare(value, literal) if type(value) in NUMBERS else checked(value, literal, scope[BUDGET])

    return run


def _among(left: Run, texts: frozenset[str]) -> Run:
    def run(scope: Scope) -> bool:
        value = left(scope)
        return type(value) is str and value in texts

    return run
