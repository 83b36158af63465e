"""The ``lists`` extension, as cel-go documents it (``ext/README.md``); ``sortBy`` is a macro."""

from callboard.languages.cel.arithmetic import ITEMS_PER_STEP, check_count
from callboard.languages.cel.budget import Budget
from callboard.languages.cel.comparison import Members, are_comparable
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import items_of, key_kind
from callboard.languages.cel.overloads import Counted, Declarations
from callboard.languages.cel.values import LISTS, CelList, Duration, Timestamp, Value
from callboard.lib.step_limits import CHARS_PER_STEP

COMPARISONS_PER_STEP = 4
"""How many comparisons of sort keys (numbers or short texts) count as one step."""

LIST_STEPS = 3
"""Steps for each flattened list, in addition to those for its items."""


def sorted_by(budget: Budget, items: list[Value], keys: list[Value]) -> CelList:
    """Sort items by their keys, which must be of one ordered kind. Items with equal keys keep their order.

    :raises EvaluationError: if the keys are of several kinds, or of one without an order
    :raises TooManySteps: if the steps are used up
    """
    budget.take(1 + len(keys))
    longest = 0
    for key in keys:
        if not are_comparable(key, key):
            raise EvaluationError(f"cannot sort by {key_kind(key)}")
        if type(key) is not type(keys[0]):
            raise EvaluationError(f"cannot sort {key_kind(keys[0])} together with {key_kind(key)}")
        if type(key) in _TEXTS:
            longest = max(longest, len(key))
    comparisons = len(keys) * len(keys).bit_length()
    budget.take(comparisons * (1 + longest // CHARS_PER_STEP) // COMPARISONS_PER_STEP)
    if keys and type(keys[0]) in _INSTANTS:
        keys = [key.ns for key in keys]
    return CelList(items[place] for place in sorted(range(len(items)), key=keys.__getitem__))


_TEXTS = frozenset((str, bytes))
_INSTANTS = frozenset((Timestamp, Duration))


def _sort(budget: Budget, items: list[Value]) -> CelList:
    values = items_of(items)
    return sorted_by(budget, values, values)


def _slice(budget: Budget, items: list[Value], start: int, end: int) -> CelList:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"there is no slice from {start} to {end} of a list of {len(items)}")
    budget.take((end - start) // ITEMS_PER_STEP)
    part = items[start:end]
    return CelList(part if type(items) is CelList else items_of(part))


def _flatten(budget: Budget, items: list[Value], depth: int = 1) -> CelList:
    if depth < 0:
        raise EvaluationError(f"cannot flatten {depth} levels")
    flat = CelList()
    _flatten_into(flat, items, depth, budget)
    return flat


def _flatten_into(flat: CelList, items: list[Value], depth: int, budget: Budget) -> None:
    budget.take(LIST_STEPS + len(items))
    for item in items_of(items):
        if depth > 0 and type(item) in LISTS:
            _flatten_into(flat, item, depth - 1, budget)
        else:
            flat.append(item)


def _range(budget: Budget, count: int) -> CelList:
    check_count(count)
    budget.take(count // ITEMS_PER_STEP)
    return CelList(range(count))


def _reverse(budget: Budget, items: list[Value]) -> CelList:
    budget.take(len(items) // ITEMS_PER_STEP)
    return CelList(reversed(items_of(items)))


def _distinct(budget: Budget, items: list[Value]) -> CelList:
    """Keep the first of equal items."""
    seen = Members(budget)
    return CelList(item for item in items_of(items) if seen.add(item))


LISTS_PROFILE: Declarations = {
    "list.slice(int, int)": Counted(_slice),
    "list.flatten()": Counted(_flatten),
    "list.flatten(int)": Counted(_flatten),
    "list.sort()": Counted(_sort),
    "list.reverse()": Counted(_reverse),
    "list.distinct()": Counted(_distinct),
    "lists.range(int)": Counted(_range),
}
"""All functions of the profile, by signature."""
