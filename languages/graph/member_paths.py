"""Paths from a value to its members: ``lines.0.price``. Any other text is evaluated as an expression.

Names need no quotes: ``first name``, ``2024`` and ``true`` are names. A missing member is null, even if a node or
another name that expressions can see is called the same.
"""

import re
from collections.abc import Callable

from callboard.languages.graph.budget import Budget
from callboard.languages.graph.expressions import Scope, evaluate, parse, step_into
from callboard.languages.graph.rules import MEMBER_PATHS
from callboard.lib.json_types import JSON

_NAMES = re.compile(r"""[^\s$.()\[\]{}<>=!&|,"'][^.()\[\]{}<>=!&|,"']*(\.[^.()\[\]{}<>=!&|,"']+)*""")

_WHOLE = ("data", "input", "item")
"""Names for the value itself at the beginning of a path, unless it has a member of that name."""


def member_at(path: str, value: JSON, scope: Callable[[], Scope], rules: int, budget: Budget) -> JSON:
    """Return the member of a value at a path, or the value of an expression in ``scope``.

    :raises ExpressionInvalid: if the text is neither a path nor an expression
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
