"""The ``sets`` extension, as cel-go documents it (``ext/README.md``): lists, taken as sets."""

from callboard.languages.cel.comparison import Members
from callboard.languages.cel.members import items_of
from callboard.languages.cel.overloads import Declarations
from callboard.languages.cel.values import Value


def _contains(whole: list[Value], part: list[Value]) -> bool:
    known = Members(items_of(whole))
    return all(item in known for item in items_of(part))


def _equivalent(left: list[Value], right: list[Value]) -> bool:
    return _contains(left, right) and _contains(right, left)


def _intersects(left: list[Value], right: list[Value]) -> bool:
    known = Members(items_of(right))
    return any(item in known for item in items_of(left))


SETS: Declarations = {
    "sets.contains(list, list)": _contains,
    "sets.equivalent(list, list)": _equivalent,
    "sets.intersects(list, list)": _intersects,
}
"""Every function of the profile, by signature."""
