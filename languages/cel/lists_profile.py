"""The ``lists`` extension, as cel-go documents it (``ext/README.md``); ``sortBy`` is a macro."""

from callboard.languages.cel.arithmetic import check_count
from callboard.languages.cel.comparison import Members, comparable
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import items_of, key_kind
from callboard.languages.cel.overloads import Declarations
from callboard.languages.cel.values import LISTS, CelList, Value


def sorted_by(items: list[Value], keys: list[Value]) -> CelList:
    """Sort items by their keys, which must be of one kind that has an order. Equal ones stay as they are.

    :raises EvaluationError: if the keys are not such
    """
    for key in keys:
        if not comparable(key, key):
            raise EvaluationError(f"cannot sort by {key_kind(key)}")
        if type(key) is not type(keys[0]):
            raise EvaluationError(f"cannot sort {key_kind(keys[0])} together with {key_kind(key)}")
    return CelList(items[place] for place in sorted(range(len(items)), key=keys.__getitem__))


def _sort(items: list[Value]) -> CelList:
    values = items_of(items)
    return sorted_by(values, values)


def _slice(items: list[Value], start: int, end: int) -> CelList:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"there is no slice from {start} to {end} of a list of {len(items)}")
    return CelList(items_of(items)[start:end])


def _flatten(items: list[Value], depth: int = 1) -> CelList:
    if depth < 0:
        raise EvaluationError(f"cannot flatten {depth} levels")
    flat = CelList()
    _flatten_into(flat, items, depth)
    return flat


def _flatten_into(flat: CelList, items: list[Value], depth: int) -> None:
    for item in items_of(items):
        if depth > 0 and type(item) in LISTS:
            _flatten_into(flat, item, depth - 1)
        else:
            flat.append(item)
    check_count(len(flat))


def _range(count: int) -> CelList:
    check_count(count)
    return CelList(range(count))


def _distinct(items: list[Value]) -> CelList:
    """Keep the first of each equal items."""
    kept = CelList()
    seen = Members()
    for item in items_of(items):
        if item not in seen:
            seen.add(item)
            kept.append(item)
    return kept


LISTS_PROFILE: Declarations = {
    "list.slice(int, int)": _slice,
    "list.flatten()": _flatten,
    "list.flatten(int)": _flatten,
    "list.sort()": _sort,
    "list.reverse()": lambda items: CelList(reversed(items_of(items))),
    "list.distinct()": _distinct,
    "lists.range(int)": _range,
}
"""Every function of the profile, by signature."""
