"""The closures of the macros that iterate over a list or the keys of a map."""

from collections.abc import Callable
from typing import Any

from callboard.languages.cel.arithmetic import ITEMS_PER_STEP
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import items_of, key_kind, keys_of
from callboard.languages.cel.profiles import sorted_by
from callboard.languages.cel.scope import BUDGET, Run, Scope
from callboard.languages.cel.syntax import MacroName
from callboard.languages.cel.values import LISTS, MAPS, CelList, Value

FAULT_STEPS = 8
"""Steps for an error that does not end the evaluation, because raising and catching it takes longer than a value."""


def comprehension(macro: MacroName, source: Run, slot: int, weight: int, condition: Run | None, body: Run) -> Run:
    """Return the closure of a macro. ``slot`` is its variable's place in the scope; each element takes ``weight``
    steps."""
    match macro:
        case "all" | "exists":
            return _quantify(source, slot, weight, body, decisive=macro == "exists")
        case "exists_one":
            return _exists_one(_charge_elements(source, weight), slot, body)
        case "filter":
            return _filter(_charge_elements(source, weight), slot, body)
        case "sortBy":
            return _sort(source, slot, weight, body)
        case "map":
            elements = _charge_elements(source, weight)
            return (
                _map(elements, slot, body) if condition is None else _transform_chosen(elements, slot, condition, body)
            )


def not_bool(value: Value) -> EvaluationError:
    """Return the error of a condition that is not a bool."""
    return EvaluationError(f"a condition is a bool, and this one {key_kind(value)}; compare it with something")


Elements = Callable[[Scope], list[Value]]


def _charge_elements(source: Run, weight: int) -> Elements:
    """Return a function that returns the elements of a list or map, after counting ``weight`` steps for each."""

    def elements(scope: Scope) -> list[Value]:
        found = source(scope)
        if type(found) in LISTS:
            scope[BUDGET].take(weight * len(found))
            return items_of(found)
        if type(found) in MAPS:
            scope[BUDGET].take(weight * len(found))
            return keys_of(found)
        raise EvaluationError(f"cannot go through {key_kind(found)}: only through a list or the keys of a map")

    return elements


def _quantify(source: Run, slot: int, weight: int, body: Run, *, decisive: bool) -> Run:
    """Return ``decisive`` at the first element with this verdict, even if others fail; otherwise raise the first error.

    The loop may end early, so each element's steps count when it is visited.
    """
    elements = _charge_elements(source, 0)

    def run(scope: Scope) -> bool:
        fault: EvaluationError | None = None
        budget = scope[BUDGET]
        found = elements(scope)
        budget.take(len(found) // ITEMS_PER_STEP)
        for element in found:
            scope[slot] = element
            budget.left -= weight
            if budget.left < 0:
                budget.take(0)
            try:
                verdict = body(scope)
            except EvaluationError as raised:
                budget.take(FAULT_STEPS)
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


def _exists_one(elements: Elements, slot: int, body: Run) -> Run:
    def run(scope: Scope) -> bool:
        found = 0
        for element in elements(scope):
            scope[slot] = element
            verdict = body(scope)
            if verdict is True:
                found += 1
            elif verdict is not False:
                raise not_bool(verdict)
        return found == 1

    return run


def _filter(elements: Elements, slot: int, body: Run) -> Run:
    def run(scope: Scope) -> CelList:
        kept = CelList()
        for element in elements(scope):
            scope[slot] = element
            verdict = body(scope)
            if verdict is True:
                kept.append(element)
            elif verdict is not False:
                raise not_bool(verdict)
        return kept

    return run


def _map(elements: Elements, slot: int, body: Run) -> Run:
    def run(scope: Scope) -> CelList:
        made = CelList()
        append = made.append
        for element in elements(scope):
            scope[slot] = element
            append(body(scope))
        return made

    return run


def _transform_chosen(elements: Elements, slot: int, condition: Run, body: Run) -> Run:
    def run(scope: Scope) -> CelList:
        made = CelList()
        for element in elements(scope):
            scope[slot] = element
            verdict = condition(scope)
            if verdict is True:
                made.append(body(scope))
            elif verdict is not False:
                raise not_bool(verdict)
        return made

    return run


def _sort(source: Run, slot: int, weight: int, body: Run) -> Run:
    keys_for: Callable[[Scope], Any] = _map(_charge_elements(lambda scope: scope[slot], weight), slot, body)

    def run(scope: Scope) -> CelList:
        found = source(scope)
        if type(found) not in LISTS:
            raise EvaluationError(f"cannot sort {key_kind(found)}: only a list")
        scope[slot] = found
        return sorted_by(scope[BUDGET], items_of(found), keys_for(scope))

    return run
