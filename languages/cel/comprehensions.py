"""The macros that go through a list or the keys of a map, as closures."""

from collections.abc import Callable
from typing import Any

from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.lists_profile import sorted_by
from callboard.languages.cel.members import items_of, key_kind, keys_of
from callboard.languages.cel.scope import Run, Scope, visit
from callboard.languages.cel.syntax import MacroName
from callboard.languages.cel.values import LISTS, MAPS, CelList, Value


def comprehension(macro: MacroName, source: Run, slot: int, condition: Run | None, body: Run) -> Run:
    """Make the closure of a macro: its variable is in a slot of the scope."""
    match macro:
        case "all" | "exists":
            return _quantified(source, slot, body, decisive=macro == "exists")
        case "exists_one":
            return _exists_one(source, slot, body)
        case "filter":
            return _filtered(source, slot, body)
        case "sortBy":
            return _sorted(source, slot, body)
        case "map":
            return _mapped(source, slot, body) if condition is None else _chosen(source, slot, condition, body)


def not_bool(value: Value) -> EvaluationError:
    """Make the error about something that should be true or false."""
    return EvaluationError(f"a condition is a bool, and this one {key_kind(value)}; compare it with something")


def _elements(scope: Scope, source: Run) -> list[Value]:
    found = source(scope)
    if type(found) in LISTS:
        visit(scope, len(found))
        return items_of(found)
    if type(found) in MAPS:
        visit(scope, len(found))
        return keys_of(found)
    raise EvaluationError(f"cannot go through {key_kind(found)}: only through a list or the keys of a map")


def _quantified(source: Run, slot: int, body: Run, *, decisive: bool) -> Run:
    """One decisive verdict decides, whatever else fails; otherwise the first fault stands."""

    def run(scope: Scope) -> bool:
        fault: EvaluationError | None = None
        for element in _elements(scope, source):
            scope[slot] = element
            try:
                verdict = body(scope)
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


def _exists_one(source: Run, slot: int, body: Run) -> Run:
    def run(scope: Scope) -> bool:
        found = 0
        for element in _elements(scope, source):
            scope[slot] = element
            verdict = body(scope)
            if verdict is True:
                found += 1
            elif verdict is not False:
                raise not_bool(verdict)
        return found == 1

    return run


def _filtered(source: Run, slot: int, body: Run) -> Run:
    def run(scope: Scope) -> CelList:
        kept = CelList()
        for element in _elements(scope, source):
            scope[slot] = element
            verdict = body(scope)
            if verdict is True:
                kept.append(element)
            elif verdict is not False:
                raise not_bool(verdict)
        return kept

    return run


def _mapped(source: Run, slot: int, body: Run) -> Run:
    def run(scope: Scope) -> CelList:
        made = CelList()
        append = made.append
        for element in _elements(scope, source):
            scope[slot] = element
            append(body(scope))
        return made

    return run


def _chosen(source: Run, slot: int, condition: Run, body: Run) -> Run:
    def run(scope: Scope) -> CelList:
        made = CelList()
        for element in _elements(scope, source):
            scope[slot] = element
            verdict = condition(scope)
            if verdict is True:
                made.append(body(scope))
            elif verdict is not False:
                raise not_bool(verdict)
        return made

    return run


def _sorted(source: Run, slot: int, body: Run) -> Run:
    keys_for: Callable[[Scope], Any] = _mapped(lambda scope: scope[slot], slot, body)

    def run(scope: Scope) -> CelList:
        found = source(scope)
        if type(found) not in LISTS:
            raise EvaluationError(f"cannot sort {key_kind(found)}: only a list")
        scope[slot] = found
        return sorted_by(items_of(found), keys_for(scope))

    return run
