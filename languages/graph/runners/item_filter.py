"""The runner of FILTER: it keeps the items that pass an expression or conditions."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from callboard.languages.graph.budget import WorkBudget
from callboard.languages.graph.expressions import (
    ExpressionInvalid,
    among,
    contains,
    equal,
    evaluate,
    less,
    matches,
    parse,
    text_of,
)
from callboard.languages.graph.output_shape import Ports
from callboard.languages.graph.runners.code import CodeResult, run_code
from callboard.languages.graph.runners.sort_order import sort_positions
from callboard.languages.graph.work import NodeAttempt, NodeFailed, Outputs
from callboard.lib.json_types import JSON

Test = Callable[[JSON], bool]
"""Whether an item passes; raises `ExpressionInvalid` if the item cannot be tested."""


async def filter_items(work: NodeAttempt) -> Outputs:
    """FILTER: pass items on at ``passed``, the others at ``filtered``; both ports have the whole payload."""
    items = work.items()
    return await work.compute(_filter_items, items, await _verdicts(work, items))


def _filter_items(work: NodeAttempt, items: list[JSON], verdicts: list[bool | str]) -> Outputs:
    work.budget.take(len(items))
    errors: list[JSON] = []
    passed: list[JSON] = []
    excluded: list[JSON] = []
    inverted = work.setting("filter_mode") == "exclude" and _has_criterion(work)
    for index, (item, verdict) in enumerate(zip(items, verdicts, strict=True)):
        if isinstance(verdict, str):
            errors.append({"index": index, "error": verdict})
            passes = work.setting("error_handling") == "include_with_warning"
        else:
            passes = verdict is not inverted
        (passed if passes else excluded).append(item)
    return _outputs(work, _limit_items(work, _sort_items(work, passed)), excluded, errors, len(items))


def _outputs(work: NodeAttempt, passed: list[JSON], excluded: list[JSON], errors: list[JSON], total: int) -> Outputs:
    account = {
        "filtered_data": passed,
        "excluded_data": excluded,
        "filter_stats": {
            "total_input": total,
            "items_passed": len(passed),
            "items_filtered": len(excluded),
            "filter_time_ms": 0,
        },
        "validation_errors": errors,
    }
    ports: Ports = {"passed": account, "statistics": account}
    return Outputs({**ports, "filtered": account} if excluded else ports)


def _has_criterion(work: NodeAttempt) -> bool:
    """Whether the node has a criterion; without one, the mode ``exclude`` excludes nothing."""
    written = (work.setting(name) for name in ("predicate_expression", "expression", "custom_filter_function"))
    texts = any(isinstance(text, str) and text.strip() for text in written)
    return texts or bool(conditions_of(work, work.setting("conditions")))


async def _verdicts(work: NodeAttempt, items: list[JSON]) -> list[bool | str]:
    """Return for each item whether it passes, or a text why it cannot be tested."""
    function = work.setting("custom_filter_function")
    if work.setting("filter_type") == "custom_function" and isinstance(function, str) and function.strip():
        returned = await run_code(work.node, "filter", function, items)
        return [_check_verdict(work, one) for one in returned]
    return await work.compute(_test_items, items)


def _test_items(work: NodeAttempt, items: list[JSON]) -> list[bool | str]:
    test = _test(work)
    verdicts: list[bool | str] = []
    for item in items:
        try:
            verdicts.append(test(item))
        except ExpressionInvalid as invalid:
            verdicts.append(_invalid(work, str(invalid)))
    return verdicts


def _check_verdict(work: NodeAttempt, returned: CodeResult) -> bool | str:
    return bool(returned.value) if returned.error is None else _invalid(work, returned.error)


def _invalid(work: NodeAttempt, reason: str) -> str:
    if work.setting("error_handling") == "fail_on_error":
        raise NodeFailed("graph.filter", f"an item cannot be judged: {reason}")
    return reason


def _test(work: NodeAttempt) -> Test:
    """Make the test. An expression takes precedence over conditions; without either all items pass."""
    written = work.setting("predicate_expression", "expression")
    if isinstance(written, str) and written.strip():
        try:
            expression = parse(written)
        except ExpressionInvalid as invalid:
            raise NodeFailed("graph.expression", str(invalid)) from None
        work.budget.take_parsed(written)
        scope = work.scope()
        return lambda item: bool(evaluate(expression, replace(scope, local={"item": item})))
    conditions = conditions_of(work, work.setting("conditions"))
    return lambda item: passes_conditions(work, conditions, item)


def conditions_of(work: NodeAttempt, listed: JSON) -> list["FieldCondition"]:
    """Read conditions ``{field, operator, value}``."""
    return [_condition(work, one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def passes_conditions(work: NodeAttempt, conditions: Sequence["FieldCondition"], item: JSON) -> bool:
    """Whether an item passes conditions that the node's ``logical_operator`` joins; without conditions it does."""
    work.budget.take(1)
    held = (one.holds(work, item) for one in conditions)
    match text_of(work.setting("logical_operator")).upper():
        case "OR":
            return not conditions or any(held)
        case "NOT":
            return not any(held)
        case _:
            return all(held)


class FieldCondition(Struct, frozen=True):
    """A condition on a field, which is a path into the item; an empty path is the item itself.

    If it is ``folded``, it ignores case, and ``wanted`` is case-folded already.
    """

    field: str
    operator: str
    wanted: JSON
    nulls: str
    folded: bool
    range: "Range | None" = None

    def holds(self, work: NodeAttempt, item: JSON) -> bool:
        value = work.find_in(item, self.field) if self.field else item
        if self.operator in ("exists", "not_exists"):
            wanted = self.wanted is not False
            return (value is not None) is (wanted if self.operator == "exists" else not wanted)
        if value is None and (self.wanted is not None or self.range is not None):
            if self.nulls != "treat_as_empty":
                return self.nulls == "include"
            value = ""
        if self.range is not None:
            return self.range.holds(value, work.budget)
        operator = _OPERATORS.get(self.operator)
        if operator is None:
            raise ExpressionInvalid(f"there is no operator {self.operator!r}, only {', '.join(_OPERATORS)}")
        return operator(work.budget, _fold_case(value, work.budget) if self.folded else value, self.wanted)


class Range(Struct, frozen=True):
    """A range of values, open at an end that is None."""

    low: JSON
    high: JSON
    inclusive: bool

    def holds(self, value: JSON, budget: WorkBudget) -> bool:
        ends = [(self.low, value)] if self.low is not None else []
        ends += [(value, self.high)] if self.high is not None else []
        return all(
            less(after, before, budget) is False if self.inclusive else less(before, after, budget)
            for before, after in ends
        )


def _range(work: NodeAttempt, written: dict[str, Any]) -> Range | None:
    """Return the range of a condition without an operator."""
    if written.get("operator"):
        return None
    low, high = (work.render(written.get(name)) for name in ("min_value", "max_value"))
    return None if low is None and high is None else Range(low, high, written.get("inclusive") is not False)


def _condition(work: NodeAttempt, written: dict[str, Any]) -> FieldCondition:
    folded = work.setting("case_sensitive") is False
    wanted = work.render(written.get("value"))
    return FieldCondition(
        field=text_of(written.get("field")),
        operator=text_of(written.get("operator") or "equals").lower(),
        wanted=_fold_case(wanted, work.budget) if folded else wanted,
        nulls=text_of(work.setting("null_handling")),
        folded=folded,
        range=_range(work, written),
    )


def _fold_case(value: JSON, budget: WorkBudget) -> JSON:
    budget.take(1)
    match value:
        case str():
            budget.take_text(len(value))
            return value.casefold()
        case list():
            return [_fold_case(item, budget) for item in value]
        case _:
            return value


def _within(budget: WorkBudget, value: JSON, wanted: JSON) -> bool:
    return among(value, wanted, budget) if isinstance(wanted, list) else equal(value, wanted, budget)


Operator = Callable[[WorkBudget, JSON, JSON], bool]

_NAMED: dict[tuple[str, ...], Operator] = {
    ("equals", "==", "===", "eq"): lambda budget, value, wanted: equal(value, wanted, budget),
    ("not_equals", "!=", "!==", "ne"): lambda budget, value, wanted: not equal(value, wanted, budget),
    ("greater_than", ">", "gt"): lambda budget, value, wanted: less(wanted, value, budget) is True,
    ("less_than", "<", "lt"): lambda budget, value, wanted: less(value, wanted, budget) is True,
    (">=", "greater_than_or_equal", "gte"): lambda budget, value, wanted: less(value, wanted, budget) is False,
    ("<=", "less_than_or_equal", "lte"): lambda budget, value, wanted: less(wanted, value, budget) is False,
    ("in",): _within,
    ("not_in",): lambda budget, value, wanted: not _within(budget, value, wanted),
    ("contains",): contains,
    ("not_contains",): lambda budget, value, wanted: not contains(budget, value, wanted),
    ("regex", "matches"): matches,
}

_OPERATORS = {name: operator for names, operator in _NAMED.items() for name in names}


def _sort_items(work: NodeAttempt, items: list[JSON]) -> list[JSON]:
    field = work.setting("sort_field")
    if work.setting("sort_filtered_results") is not True or not isinstance(field, str):
        return items
    keys = [work.value_in(item, field) if field else item for item in items]
    indices, _comparisons = sort_positions(work, keys, descending=work.setting("sort_order") == "desc")
    return items if indices is None else [items[i] for i in indices]


def _limit_items(work: NodeAttempt, items: list[JSON]) -> list[JSON]:
    most = int(work.number("max_results", otherwise=-1))
    return items[:most] if most >= 0 else items
