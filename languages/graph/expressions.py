"""The evaluation of expressions: the value of a condition, or of a place in a template, in a scope.

Expressions are interpreted and never compiled to Python. An evaluation takes time proportional to the length of the
expression times that of the data at most; the `WorkBudget` of the scope counts its steps. Missing members are null.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import islice, repeat
from typing import Any

import msgspec
from msgspec import Struct, field

from callboard.languages.graph.budget import SCANNED_MAX, WorkBudget
from callboard.languages.graph.coercion import UNFIT, coerce
from callboard.languages.graph.expression_syntax import (
    EVERY,
    Constant,
    Expression,
    ExpressionInvalid,
    FunctionCall,
    Path,
    parse,
)
from callboard.languages.json_text import plain_number
from callboard.lib.json_types import JSON
from callboard.lib.patterns import BadPattern
from callboard.lib.step_limits import CHARS_PER_STEP

__all__ = [
    "ExpressionInvalid",
    "ExpressionNames",
    "among",
    "contains",
    "equal",
    "evaluate",
    "holds",
    "less",
    "matches",
    "parse",
    "step_into",
    "text_of",
    "write_value",
]

ITEMS_MAX = 100_000
"""How many items ``[*]`` may select."""


class ExpressionNames(Struct, frozen=True):
    """The names that an expression can refer to, and their values.

    ``data`` is the value on the port ``result``; ``inputs`` the values by port; ``nodes`` the outputs of nodes by port,
    under their ids and names; ``local`` the names that the runner adds, such as ``item``. ``now_ms`` is the time in
    milliseconds of the epoch.
    """

    data: JSON = None
    inputs: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    config: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    trigger: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    nodes: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    variables: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    local: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    now_ms: int = 0
    budget: WorkBudget = field(default_factory=WorkBudget)

    def root(self, name: str) -> JSON:
        """Return the value of a root: a ``$`` root, a local name, a member of the data, or a name of the context."""
        match name:
            case "$json" | "$" | "input":
                return self.data
            case "$input":
                return self.inputs
            case "$config":
                return self.config
            case "$trigger":
                return self.trigger
            case "$node" | "$nodes":
                return self.nodes
            case "$variables":
                return self.variables
            case "$item":
                return self.local.get("item")
            case _:
                return self._bare(name)

    def _bare(self, name: str) -> JSON:
        if name in self.local:
            return self.local[name]
        own = step_into(self.data, name, self.budget) if isinstance(self.data, Mapping) else None
        if own is not None:
            return own
        match name:
            case "data":
                return self.data
            case "config" | "trigger" | "variables" | "nodes":
                return getattr(self, name)
            case _:
                return self.nodes.get(name)


def holds(text: str, scope: ExpressionNames) -> bool:
    """Say whether a condition holds; an empty one does not.

    :raises ExpressionInvalid: if it is not an expression
    """
    scope.budget.take_parsed(text)
    return bool(text.strip()) and bool(evaluate(parse(text), scope))


def evaluate(expression: Expression, scope: ExpressionNames) -> JSON:
    """Return the value of an expression.

    :raises ExpressionInvalid: if it uses an invalid regular expression
    :raises TooManySteps: if it takes more steps than its budget has left
    """
    scope.budget.take(1)
    match expression:
        case Constant(value):
            return value
        case Path(root, steps):
            value = scope.root(root)
            for i, step in enumerate(steps):
                if step is EVERY:
                    return _every(value, steps[i + 1 :], scope)
                value = step_into(value, _step(step, scope), scope.budget)
            return value
        case FunctionCall("||" | "or", arguments):
            return any(bool(evaluate(one, scope)) for one in arguments)
        case FunctionCall("&&" | "and", arguments):
            return all(bool(evaluate(one, scope)) for one in arguments)
        case FunctionCall("if", (condition, then, other)):
            return evaluate(then if evaluate(condition, scope) else other, scope)
        case FunctionCall("now", ()):
            return scope.now_ms
        case FunctionCall(name, arguments):
            return _FUNCTIONS[name](scope.budget, *[evaluate(one, scope) for one in arguments])


def _step(step: Any, scope: ExpressionNames) -> Any:
    return evaluate(step, scope) if isinstance(step, Constant | Path | FunctionCall) else step


def step_into(value: JSON, step: Any, budget: WorkBudget) -> JSON:
    """Return a member or an item of a value; null if missing. A name that has no exact match matches in any case."""
    match value, step:
        case Mapping(), str():
            if step in value:
                return value[step]
            name = budget.name_in(value, step)
            return None if name is None else value[name]
        case list(), bool():
            return None
        case list(), int() if -len(value) <= step < len(value):
            return value[step]
        case list(), str() if step.isdecimal() and int(step) < len(value):
            return value[int(step)]
        case _:
            return None


def _every(value: JSON, steps: Sequence[Any], scope: ExpressionNames) -> JSON:
    items: list[Any] = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    for step in steps:
        scope.budget.take(2 * len(items))
        if step is EVERY:
            items = list(islice((one for item in items if isinstance(item, list) for one in item), ITEMS_MAX + 1))
        else:
            items = [step_into(item, _step(step, scope), scope.budget) for item in items]
        if len(items) > ITEMS_MAX:
            raise ExpressionInvalid(f"[*] comes to more than {ITEMS_MAX} items")
    return items


# -- functions ---------------------------------------------------------------------------------------------------------


def write_value(value: JSON, budget: WorkBudget) -> str:
    """Return a value as text, as `text_of` does, and count its characters in the budget."""
    text = text_of(value)
    budget.take_written(len(text))
    return text


def text_of(value: JSON) -> str:
    """Return a value as text as templates show it: null is empty, a string itself, everything else its JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return msgspec.json.encode(value).decode()


def equal(left: JSON, right: JSON, budget: WorkBudget) -> bool:
    """Whether two JSON values are equal; a boolean is not a number."""
    budget.take(1)
    match left, right:
        case (bool(), _) | (_, bool()):
            return left is right
        case dict(), dict():
            if left.keys() != right.keys():
                return False
            # `map` uses a single frame of Python's stack for each level, since values may nest deep.
            return all(map(equal, left.values(), map(right.__getitem__, left), repeat(budget)))
        case list(), list():
            return len(left) == len(right) and all(map(equal, left, right, repeat(budget)))
        case str(), str():
            budget.take(min(len(left), len(right)) // CHARS_PER_STEP)
            return left == right
        case _:
            return left == right


def less(left: JSON, right: JSON, budget: WorkBudget) -> bool | None:
    """Whether one value is less than another; None if they have no order. A text that is a number compares as one."""
    budget.take(1)
    if isinstance(left, str) and isinstance(right, str):
        budget.take(min(len(left), len(right)) // CHARS_PER_STEP)
        return left < right
    a, b = _to_number(left), _to_number(right)
    return None if a is None or b is None else a < b


def _to_number(value: JSON) -> Any:
    made = None if isinstance(value, str) and "{{" in value else coerce(value, "number")
    return None if made is UNFIT else made


def _arithmetic(calculate: Callable[..., Any]) -> Callable[..., JSON]:
    def apply(_budget: WorkBudget, *values: JSON) -> JSON:
        numbers = [_to_number(value) for value in values]
        if any(number is None for number in numbers):
            return None
        try:
            made = calculate(*numbers)
        except (ZeroDivisionError, OverflowError):
            return None
        return plain_number(made) if math.isfinite(made) else None

    return apply


def _length(_budget: WorkBudget, value: JSON) -> JSON:
    return len(value) if isinstance(value, str | list | dict) else 0


def among(value: JSON, items: list[JSON], budget: WorkBudget) -> bool:
    """Whether a list has an item that is equal to a value."""
    if len(items) > SCANNED_MAX:
        return budget.is_among(value, items)
    return any(equal(item, value, budget) for item in items)


def contains(budget: WorkBudget, value: JSON, wanted: JSON) -> bool:
    """Whether a text contains another, a list an item, an object a member."""
    match value:
        case str():
            budget.take_text(len(value))
            return write_value(wanted, budget) in value
        case list():
            return among(wanted, value, budget)
        case Mapping():
            return wanted in value if isinstance(wanted, str) else False
        case _:
            return False


def matches(budget: WorkBudget, value: JSON, pattern: JSON, ignore_case: JSON = False) -> bool:
    """Whether a pattern matches somewhere in a value's text.

    :raises ExpressionInvalid: if the pattern is not a regular expression
    """
    text = text_of(pattern)
    try:
        return budget.patterns.found(f"(?i){text}" if ignore_case else text, write_value(value, budget))
    except (BadPattern, UnicodeEncodeError) as bad:
        raise ExpressionInvalid(f"the pattern {text!r:.100} is none: {bad}") from None


def _not_equal(budget: WorkBudget, left: JSON, right: JSON) -> bool:
    return not equal(left, right, budget)


def _equal(budget: WorkBudget, left: JSON, right: JSON) -> bool:
    return equal(left, right, budget)


def _texts(calculate: Callable[..., JSON], budget: WorkBudget, *values: JSON) -> JSON:
    """Call a function of texts with values that are converted to text."""
    return calculate(*[write_value(value, budget) for value in values])


def _not(_budget: WorkBudget, value: JSON) -> bool:
    return not value


_FUNCTIONS: dict[str, Callable[..., JSON]] = {
    "!": _not,
    "not": _not,
    "===": _equal,
    "==": _equal,
    "!==": _not_equal,
    "!=": _not_equal,
    "<": lambda budget, left, right: less(left, right, budget) is True,
    ">": lambda budget, left, right: less(right, left, budget) is True,
    "<=": lambda budget, left, right: less(right, left, budget) is False,
    ">=": lambda budget, left, right: less(left, right, budget) is False,
    "len": _length,
    "contains": contains,
    "startswith": partial(_texts, str.startswith),
    "endswith": partial(_texts, str.endswith),
    "lower": partial(_texts, str.lower),
    "upper": partial(_texts, str.upper),
    "tonumber": lambda _budget, value: _to_number(value),
    "clamp": _arithmetic(lambda value, low, high: max(low, min(value, high))),
    "add": _arithmetic(lambda *values: sum(values)),
    "sub": _arithmetic(lambda left, right: left - right),
    "mul": _arithmetic(lambda *values: reduce(lambda a, b: a * b, values)),
    "div": _arithmetic(lambda left, right: left / right),
    "mod": _arithmetic(lambda left, right: left % right),
    "regex": matches,
    "coalesce": lambda _budget, *values: next((value for value in values if value is not None), None),
}
