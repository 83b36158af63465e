"""The runner of DATA_TRANSFORMATION: items mapped, picked, put in order, grouped and counted."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from callboard.bus.effects import JSON, canonical
from callboard.languages.graph.code import run_code
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import equal, text_of
from callboard.languages.graph.runners.filtering import conditions_of, holding
from callboard.languages.graph.runners.sorting import ordered
from callboard.languages.graph.templates import rendered
from callboard.languages.graph.work import NodeFailed, Outputs, Work, number, result

_MAPPINGS = ("mapping_rules", "field_mappings", "field_mapping")
_PATHS = ("transform_script", "jsonpath", "path", "transformation_script")


async def transform(work: Work) -> Outputs:
    """Transform the input, item by item if it is a list; ``transform_type`` goes before ``operation``."""
    type = work.setting("transform_type")
    operation = text_of(type or work.setting("operation"))
    whole = work.data
    items = work.items()
    listed = isinstance(whole, list) or (isinstance(whole, dict) and isinstance(whole.get("data"), list))
    if type is not None:
        one = _TYPES.get(operation)
        made = [one(work, item) for item in items] if one else list(items)
    elif operation == "custom" or (operation == "map" and not _mapping(work) and _script(work)):
        made = await _custom(work, items)
    else:
        made = _OPERATIONS.get(operation, lambda _work, given: list(given))(work, items)
    single = not listed and len(made) == 1 and operation not in _GATHERING
    payload = {
        "transformed_data": made[0] if single else made,
        "original_count": len(items),
        "output_count": len(made),
        "transformation_stats": {"operation": operation},
        "success": True,
        "error_message": "",
    }
    return result(payload)


# -- by transform_type -------------------------------------------------------------------------------------------------


def _mapping(work: Work) -> dict[str, JSON]:
    found = next((given for name in _MAPPINGS if isinstance(given := work.setting(name), dict) and given), {})
    return dict(found)


def _script(work: Work) -> str:
    script = work.setting("transformation_script")
    return script if isinstance(script, str) else ""


def _mapped(work: Work, item: JSON) -> JSON:
    """An object of targets and what their paths come to; without any, the item."""
    rules = _mapping(work)
    made = {
        target: work.value_in(item, path, item=item) if isinstance(path, str) and path.strip() else path
        for target, path in rules.items()
    }
    return made if rules else item


def _picked(work: Work, item: JSON) -> JSON:
    path = text_of(work.setting(*_PATHS))
    return work.value_in(item, path, item=item) if path.strip() else item


def _templated(work: Work, item: JSON) -> JSON:
    return rendered(work.setting("template_map") or {}, work.scope(item, item=item))


_TYPES: dict[str, Callable[[Work, JSON], JSON]] = {
    "mapping": _mapped,
    "jsonpath": _picked,
    "path": _picked,
    "template_map": _templated,
}


# -- by operation ------------------------------------------------------------------------------------------------------


def _map(work: Work, items: Sequence[JSON]) -> list[JSON]:
    return [_mapped(work, item) for item in items]


def _filter(work: Work, items: Sequence[JSON]) -> list[JSON]:
    conditions = conditions_of(work, work.setting("filter_conditions"))
    return [item for item in items if holding(work, conditions, item)]


def _sort(work: Work, items: Sequence[JSON]) -> list[JSON]:
    config = work.setting("sort_config")
    wanted: dict[str, Any] = config if isinstance(config, dict) else {}
    keys = [_at(work, item, text_of(wanted.get("field"))) for item in items]
    indices, _comparisons = ordered(work, keys, descending=wanted.get("direction") == "desc")
    return list(items) if indices is None else [items[i] for i in indices]


def _at(work: Work, item: JSON, path: str) -> JSON:
    return work.value_in(item, path, item=item) if path else item


def _groups(work: Work, items: Sequence[JSON]) -> list[tuple[dict[str, JSON], list[JSON]]]:
    """Group items by the fields that are listed, in the order of their first appearance; by none, all are one."""
    listed = work.setting("group_by_fields")
    fields = [text_of(field) for field in listed] if isinstance(listed, list) else []
    groups: dict[bytes, tuple[dict[str, JSON], list[JSON]]] = {}
    for item in items:
        key = {field: _at(work, item, field) for field in fields}
        groups.setdefault(canonical(key), (key, []))[1].append(item)
    return list(groups.values())


def _group(work: Work, items: Sequence[JSON]) -> list[JSON]:
    return [{**key, "items": members, "count": len(members)} for key, members in _groups(work, items)]


def _aggregate(work: Work, items: Sequence[JSON]) -> list[JSON]:
    given = work.setting("aggregation_functions")
    wanted: dict[str, Any] = given if isinstance(given, dict) else {}
    return [
        {**key, **{target: _aggregated(work, members, target, how) for target, how in wanted.items()}}
        for key, members in _groups(work, items)
    ]


def _aggregated(work: Work, members: list[JSON], target: str, how: Any) -> JSON:
    """Apply a function, ``sum`` or ``{function, field}``, to a field, which is the target unless it is named."""
    named: dict[str, Any] = how if isinstance(how, dict) else {"function": how}
    values = [_at(work, item, text_of(named.get("field") or target)) for item in members]
    present = [value for value in values if value is not None]
    name = text_of(named.get("function")).lower()
    function = _AGGREGATES.get(name)
    if function is None:
        raise NodeFailed("graph.configuration", f"there is no aggregation {name!r}, only {', '.join(_AGGREGATES)}")
    return len(members) if name == "count" else function(present) if present else None


_AGGREGATES: dict[str, Callable[[list[Any]], JSON]] = {
    "count": len,
    "sum": lambda values: sum(map(number, values)),
    "avg": lambda values: sum(map(number, values)) / len(values),
    "average": lambda values: sum(map(number, values)) / len(values),
    "min": lambda values: min(map(number, values)),
    "max": lambda values: max(map(number, values)),
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "list": list,
    "collect": list,
}


def _flatten(_work: Work, items: Sequence[JSON]) -> list[JSON]:
    """Spread lists in the list; members of members become members with dotted names."""
    spread: Iterable[JSON] = (one for item in items for one in (item if isinstance(item, list) else [item]))
    return [_flat(item) if isinstance(item, dict) else item for item in spread]


def _flat(item: dict[str, JSON], before: str = "") -> dict[str, JSON]:
    made: dict[str, JSON] = {}
    for name, value in item.items():
        made |= _flat(value, f"{before}{name}.") if isinstance(value, dict) and value else {f"{before}{name}": value}
    return made


def _join(work: Work, items: Sequence[JSON]) -> list[JSON]:
    """Merge objects that agree in the first of the fields to group by, those of the first list in front."""
    listed = work.setting("group_by_fields")
    field = text_of(work.setting("join_key", "merge_key") or (listed[0] if isinstance(listed, list) and listed else ""))
    spread = [one for item in items for one in (item if isinstance(item, list) else [item])]
    joined: list[JSON] = []
    for item in spread:
        key = _at(work, item, field) if field else None
        found = next((i for i, one in enumerate(joined) if key is not None and equal(_at(work, one, field), key)), None)
        if found is None or not isinstance(item, dict):
            joined.append(item)
        else:
            joined[found] = {**joined[found], **item}
    return joined


def _pivot(work: Work, items: Sequence[JSON]) -> list[JSON]:
    """A row for each value of ``index``, with a member for each value of ``columns``."""
    config = work.setting("pivot_config", "field_mapping")
    wanted: dict[str, Any] = config if isinstance(config, dict) else {}
    index, columns, values = (text_of(wanted.get(name)) for name in ("index", "columns", "values"))
    rows: dict[bytes, dict[str, JSON]] = {}
    for item in items:
        key = _at(work, item, index) if index else None
        row = rows.setdefault(canonical(key), {index: key} if index else {})
        row[text_of(_at(work, item, columns))] = _at(work, item, values)
    return list(rows.values())


_OPERATIONS: dict[str, Callable[[Work, Sequence[JSON]], list[JSON]]] = {
    "map": _map,
    "filter": _filter,
    "sort": _sort,
    "aggregate": _aggregate,
    "group_by": _group,
    "flatten": _flatten,
    "join": _join,
    "pivot": _pivot,
}

_GATHERING = frozenset({"filter", "aggregate", "group_by", "flatten", "join", "pivot", "sort"})
"""Operations that make a list of whatever comes in."""


async def _custom(work: Work, items: Sequence[JSON]) -> list[JSON]:
    """Have the author's script make each item."""
    script = _script(work)
    if not script.strip():
        return list(items)
    returned = await run_code(work.node, "code", script, list(items) or [work.inputs.get(RESULT)])
    for one in returned:
        if one.error is not None:
            raise NodeFailed("graph.code", one.error, details=one.details)
    return [one.value for one in returned]
