"""The ``sets`` extension, as cel-go documents it (``ext/README.md``): lists treated as sets."""

from callboard.languages.cel.budget import Budget
from callboard.languages.cel.comparison import members_of
from callboard.languages.cel.members import items_of
from callboard.languages.cel.overloads import Counted, Declarations
from callboard.languages.cel.values import Value


def _contains(budget: Budget, whole: list[Value], part: list[Value]) -> bool:
    known = members_of(whole, budget)
    return all(item in known for item in items_of(part))


def _equivalent(budget: Budget, left: list[Value], right: list[Value]) -> bool:
    return _contains(budget, left, right) and _contains(budget, right, left)


def _intersects(budget: Budget, left: list[Value], right: list[Value]) -> bool:
    known = members_of(right, budget)
    return any(item in known for item in items_of(left))


SETS: Declarations = {
    "sets.contains(list, list)": Counted(_contains),
    "sets.equivalent(list, list)": Counted(_equivalent),
    "sets.intersects(list, list)": Counted(_intersects),
}
"""All functions of the profile, by signature."""
