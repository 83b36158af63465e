"""Paths of members: ``lines.0.price``, from a value into what is in it. Whatever else is written is an expression.

Names need no quotes, whatever they consist of: ``first name``, ``2024``, ``true``. What is missing is null, also where
a node, or something else that expressions see, has that name.
"""

import re
from collections.abc import Callable

from callboard.languages.graph.budget import Budget
from callboard.languages.graph.expressions import Scope, evaluate, parse, step_into
from callboard.languages.graph.rules import MEMBER_PATHS
from callboard.lib.json_types import JSON

_NAMES = re.compile(r"""[^\s$.()\[\]{}<>=!&|,"'][^.()\[\]{}<>=!&|,"']*(\.[^.()\[\]{}<>=!&|,"']+)*""")

_WHOLE = ("data", "input", "item")
"""What the value itself may be called at the head of a path, where it has no member of that name."""


def member_at(path: str, value: JSON, scope: Callable[[], Scope], rules: int, budget: Budget) -> JSON:
    """Return what a path comes to in a value; ``scope`` is what it sees if it is an expression.

    :raises ExpressionInvalid: if it is neither
    """
    budget.take_text(len(path))
    if rules < MEMBER_PATHS or _NAMES.fullmatch(path.strip()) is None:
        budget.take_parsed(path)
        return evaluate(parse(path), scope())
    first, *others = names = path.strip().split(".")
    if first in _WHOLE and not (isinstance(value, dict) and step_into(value, first, budget) is not None):
        names = others
    for name in names:
        budget.take(1)
        value = step_into(value, name, budget)
    return value
