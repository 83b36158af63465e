"""Expressions evaluated: what a condition, or a place in a template, comes to over the values that it sees.

Nothing here is compiled or run by Python; a value costs at most the length of its expression times that of the data.
Whatever is missing is null.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
from msgspec import Struct, field

from callboard.bus.effects import JSON
from callboard.bus.patterns import BadPattern, found
from callboard.languages.graph.coercion import UNFIT, coerced
from callboard.languages.graph.expression_syntax import EVERY, Call, Expression, ExpressionInvalid, Literal, Path, parse
from callboard.languages.json_text import plain_number

__all__ = ["ExpressionInvalid", "Scope", "equal", "evaluate", "holds", "less", "parse", "step_into", "text_of"]

ITEMS_MAX = 100_000
"""How many items ``[*]`` may come to."""


class Scope(Struct, frozen=True):
    """What an expression sees.

    ``data`` is the value on the port ``result``; ``inputs`` the values by port; ``nodes`` the outputs of nodes by port,
    under their ids and names; ``local`` what the construct adds, such as ``item``. ``now_ms`` is the time in
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

    def root(self, name: str) -> JSON:
        """Return what a root stands for: one with a sign, a local one, a member of the data, or of the context."""
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
        own = step_into(self.data, name) if isinstance(self.data, Mapping) else None
        if own is not None:
            return own
        match name:
            case "data":
                return self.data
            case "config" | "trigger" | "variables" | "nodes":
                return getattr(self, name)
            case _:
                return self.nodes.get(name)


def holds(text: str, scope: Scope) -> bool:
    """Say whether a condition holds; an empty one does not.

    :raises ExpressionInvalid: if it is no expression
    """
    return bool(text.strip()) and bool(evaluate(parse(text), scope))


def evaluate(expression: Expression, scope: Scope) -> JSON:
    """Return the value of an expression.

    :raises ExpressionInvalid: if it holds a pattern that is none
    """
    match expression:
        case Literal(value):
            return value
        case Path(root, steps):
            value = scope.root(root)
            for i, step in enumerate(steps):
                if step is EVERY:
                    return _every(value, steps[i + 1 :], scope)
                value = step_into(value, _step(step, scope))
            return value
        case Call("||" | "or", arguments):
            return any(bool(evaluate(one, scope)) for one in arguments)
        case Call("&&" | "and", arguments):
            return all(bool(evaluate(one, scope)) for one in arguments)
        case Call("if", (condition, then, other)):
            return evaluate(then if evaluate(condition, scope) else other, scope)
        case Call("now", ()):
            return scope.now_ms
        case Call(name, arguments):
            return _FUNCTIONS[name](*[evaluate(one, scope) for one in arguments])


def _step(step: Any, scope: Scope) -> Any:
    return evaluate(step, scope) if isinstance(step, Literal | Path | Call) else step


def step_into(value: JSON, step: Any) -> JSON:
    """Return a member (its name in any case, if it is not there as written) or an item of a value; null if missing."""
    match value, step:
        case Mapping(), str():
            if step in value:
                return value[step]
            lowered = step.lower()
            return next((value[name] for name in value if name.lower() == lowered), None)
        case list(), bool():
            return None
        case list(), int() if -len(value) <= step < len(value):
            return value[step]
        case list(), str() if step.isdecimal() and int(step) < len(value):
            return value[int(step)]
        case _:
            return None


def _every(value: JSON, steps: Sequence[Any], scope: Scope) -> JSON:
    items: list[Any] = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    for step in steps:
        if step is EVERY:
            items = [one for item in items if isinstance(item, list) for one in item]
        else:
            items = [step_into(item, _step(step, scope)) for item in items]
        if len(items) > ITEMS_MAX:
            raise ExpressionInvalid(f"[*] comes to more than {ITEMS_MAX} items")
    return items


# -- functions ---------------------------------------------------------------------------------------------------------


def text_of(value: JSON) -> str:
    """Write a value as a template does: null is empty, an object its JSON text."""
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return msgspec.json.encode(value).decode()


def equal(left: JSON, right: JSON) -> bool:
    """Whether two JSON values are equal; a boolean is no number."""
    match left, right:
        case (bool(), _) | (_, bool()):
            return left is right
        case dict(), dict():
            return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
        case list(), list():
            return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
        case _:
            return left == right


def less(left: JSON, right: JSON) -> bool | None:
    """Whether one value comes before another; None if they have no order. A number and a text of one compare."""
    if isinstance(left, str) and isinstance(right, str):
        return left < right
    a, b = _to_number(left), _to_number(right)
    return None if a is None or b is None else a < b


def _to_number(value: JSON) -> Any:
    made = None if isinstance(value, str) and "{{" in value else coerced(value, "number")
    return None if made is UNFIT else made


def _arithmetic(calculate: Callable[..., Any]) -> Callable[..., JSON]:
    def calculated(*values: JSON) -> JSON:
        numbers = [_to_number(value) for value in values]
        if any(number is None for number in numbers):
            return None
        try:
            made = calculate(*numbers)
        except (ZeroDivisionError, OverflowError):
            return None
        return plain_number(made) if math.isfinite(made) else None

    return calculated


def _length(value: JSON) -> JSON:
    return len(value) if isinstance(value, str | list | dict) else 0


def _contains(value: JSON, wanted: JSON) -> bool:
    match value:
        case str():
            return text_of(wanted) in value
        case list():
            return any(equal(item, wanted) for item in value)
        case Mapping():
            return wanted in value if isinstance(wanted, str) else False
        case _:
            return False


def _regex(value: JSON, pattern: JSON, ignore_case: JSON = False) -> bool:
    written = text_of(pattern)
    try:
        return found(f"(?i){written}" if ignore_case else written, text_of(value))
    except (BadPattern, UnicodeEncodeError) as bad:
        raise ExpressionInvalid(f"the pattern {written!r:.100} is none: {bad}") from None


_FUNCTIONS: dict[str, Callable[..., JSON]] = {
    "!": lambda value: not value,
    "not": lambda value: not value,
    "===": equal,
    "==": equal,
    "!==": lambda left, right: not equal(left, right),
    "!=": lambda left, right: not equal(left, right),
    "<": lambda left, right: less(left, right) is True,
    ">": lambda left, right: less(right, left) is True,
    "<=": lambda left, right: less(right, left) is False,
    ">=": lambda left, right: less(left, right) is False,
    "len": _length,
    "contains": _contains,
    "startswith": lambda value, start: text_of(value).startswith(text_of(start)),
    "endswith": lambda value, end: text_of(value).endswith(text_of(end)),
    "lower": lambda value: text_of(value).lower(),
    "upper": lambda value: text_of(value).upper(),
    "tonumber": _to_number,
    "clamp": _arithmetic(lambda value, low, high: max(low, min(value, high))),
    "add": _arithmetic(lambda *values: sum(values)),
    "sub": _arithmetic(lambda left, right: left - right),
    "mul": _arithmetic(lambda *values: reduce(lambda a, b: a * b, values)),
    "div": _arithmetic(lambda left, right: left / right),
    "mod": _arithmetic(lambda left, right: left % right),
    "regex": _regex,
    "coalesce": lambda *values: next((value for value in values if value is not None), None),
}
