"""The runner of DATA_TRANSFORMATION: it maps, filters, sorts, groups, aggregates, joins and pivots items."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any

from callboard.languages.graph.budget import WorkBudget
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import text_of, write_value
from callboard.languages.graph.runners.code import run_code
from callboard.languages.graph.runners.item_filter import conditions_of, passes_conditions
from callboard.languages.graph.runners.sort_order import sort_positions
from callboard.languages.graph.templates import render
from callboard.languages.graph.work import NodeAttempt, NodeFailed, Outputs, number, result
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

_MAPPINGS = ("mapping_rules", "field_mappings", "field_mapping")
_PATHS = ("transform_script", "jsonpath", "path", "transformation_script")


async def transform(work: NodeAttempt) -> Outputs:
    """DATA_TRANSFORMATION: transform the items of the input. ``transform_type`` takes precedence over ``operation``."""
    type = work.setting("transform_type")
    operation = text_of(type or work.setting("operation"))
    whole = work.data
    items = work.items()
    listed = isinstance(whole, list) or (isinstance(whole, dict) and isinstance(whole.get("data"), list))
    if type is not None:
        made = await work.compute(_each, _TYPES.get(operation, _leave_unchanged), items)
    elif operation == "custom" or (operation == "map" and not _mapping(work) and _script(work)):
        made = await _custom(work, items)
    else:
        made = await work.compute(_OPERATIONS.get(operation, _copy_items), items)
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


def _mapping(work: NodeAttempt) -> dict[str, JSON]:
    found = next((given for name in _MAPPINGS if isinstance(given := work.setting(name), dict) and given), {})
    return dict(found)


def _script(work: NodeAttempt) -> str:
    script = work.setting("transformation_script")
    return script if isinstance(script, str) else ""


def _map_item(work: NodeAttempt, item: JSON) -> JSON:
    """Return an object with the value of each target's path; without mapping rules the item."""
    rules = _mapping(work)
    made = {
        target: work.value_in(item, path, item=item) if isinstance(path, str) and path.strip() else path
        for target, path in rules.items()
    }
    return made if rules else item


def _pick_members(work: NodeAttempt, item: JSON) -> JSON:
    path = text_of(work.setting(*_PATHS))
    return work.value_in(item, path, item=item) if path.strip() else item


def _fill_template(work: NodeAttempt, item: JSON) -> JSON:
    return render(work.setting("template_map") or {}, work.scope(item, item=item))


def _leave_unchanged(_work: NodeAttempt, item: JSON) -> JSON:
    return item


def _each(work: NodeAttempt, one: Callable[[NodeAttempt, JSON], JSON], items: Sequence[JSON]) -> list[JSON]:
    work.budget.take(len(items))
    return [one(work, item) for item in items]


_TYPES: dict[str, Callable[[NodeAttempt, JSON], JSON]] = {
    "mapping": _map_item,
    "jsonpath": _pick_members,
    "path": _pick_members,
    "template_map": _fill_template,
}


# -- by operation ------------------------------------------------------------------------------------------------------


def _copy_items(_work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    return list(items)


def _map(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    return _each(work, _map_item, items)


def _filter(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    conditions = conditions_of(work, work.setting("filter_conditions"))
    return [item for item in items if passes_conditions(work, conditions, item)]


def _sort(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    config = work.setting("sort_config")
    wanted: dict[str, Any] = config if isinstance(config, dict) else {}
    keys = [_at(work, item, text_of(wanted.get("field"))) for item in items]
    indices, _comparisons = sort_positions(work, keys, descending=wanted.get("direction") == "desc")
    return list(items) if indices is None else [items[i] for i in indices]


def _at(work: NodeAttempt, item: JSON, path: str) -> JSON:
    return work.value_in(item, path, item=item) if path else item


def _groups(work: NodeAttempt, items: Sequence[JSON]) -> list[tuple[dict[str, JSON], list[JSON]]]:
    """Group items by the listed fields, in the order of first appearance; without fields all items are one group."""
    listed = work.setting("group_by_fields")
    fields = [text_of(field) for field in listed] if isinstance(listed, list) else []
    groups: dict[bytes, tuple[dict[str, JSON], list[JSON]]] = {}
    for item in items:
        key = {field: _at(work, item, field) for field in fields}
        groups.setdefault(_key(work, key), (key, []))[1].append(item)
    return list(groups.values())


def _key(work: NodeAttempt, value: JSON) -> bytes:
    """Return a key that is the same for equal values."""
    made = canonical(value)
    work.budget.take_text(len(made))
    return made


def _group(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    return [{**key, "items": members, "count": len(members)} for key, members in _groups(work, items)]


def _aggregate(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    given = work.setting("aggregation_functions")
    wanted: dict[str, Any] = given if isinstance(given, dict) else {}
    return [
        {**key, **{target: _apply_aggregation(work, members, target, how) for target, how in wanted.items()}}
        for key, members in _groups(work, items)
    ]


def _apply_aggregation(work: NodeAttempt, members: list[JSON], target: str, how: Any) -> JSON:
    """Apply an aggregation, ``sum`` or ``{function, field}``; the field defaults to the name of the target."""
    named: dict[str, Any] = how if isinstance(how, dict) else {"function": how}
    values = [_at(work, item, text_of(named.get("field") or target)) for item in members]
    present = [value for value in values if value is not None]
    work.budget.take(len(values))
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


def _flatten(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    """Spread inner lists; members of nested objects become members with dotted names."""
    return [_flat(item, work.budget) if isinstance(item, dict) else item for item in _spread(work, items)]


def _spread(work: NodeAttempt, items: Sequence[JSON]) -> Iterator[JSON]:
    """Yield items, and the items of an inner list in its place."""
    for item in items:
        inside: Iterable[JSON] = item if isinstance(item, list) else [item]
        work.budget.take(1 + len(item) if isinstance(item, list) else 1)
        yield from inside


def _flat(item: dict[str, JSON], budget: WorkBudget) -> dict[str, JSON]:
    made: dict[str, JSON] = {}
    open_ways: list[tuple[str, Iterator[tuple[str, JSON]]]] = [("", iter(item.items()))]
    while open_ways:
        before, members = open_ways[-1]
        name, value = next(members, (None, None))
        if name is None:
            open_ways.pop()
            continue
        budget.take_written(len(before) + len(name))
        if isinstance(value, dict) and value:
            open_ways.append((f"{before}{name}.", iter(value.items())))
        else:
            made[f"{before}{name}"] = value
    return made


def _join(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    """Merge objects with the same value of the join key, or else of the first field to group by."""
    listed = work.setting("group_by_fields")
    field = text_of(work.setting("join_key", "merge_key") or (listed[0] if isinstance(listed, list) and listed else ""))
    joined = _Joined(work, field)
    for item in _spread(work, items):
        joined.add(item)
    return joined.items


class _Joined:
    """The result of a join so far: its items, and the position of the first item with each key."""

    def __init__(self, work: NodeAttempt, field: str) -> None:
        self.items: list[JSON] = []
        self._work = work
        self._field = field
        self._keys: list[Any] = []
        self._places: dict[Any, list[int]] = {}

    def add(self, item: JSON) -> None:
        """Merge an object into the first item with its key, or add it as its own item."""
        key = self._key(item)
        found = self._first(key) if isinstance(item, dict) else None
        before = self.items[found] if found is not None else None
        if found is None or not isinstance(before, dict):
            self._place(len(self.items), key)
            self.items.append(item)
            return
        self._work.budget.take((len(before) + len(item)) // MEMBERS_PER_STEP)
        merged = self.items[found] = {**before, **item}
        # The key may be an expression over several members, so the merged object may have another key.
        self._place(found, self._key(merged))

    def _key(self, item: JSON) -> Any:
        value = _at(self._work, item, self._field) if self._field else None
        return None if value is None else self._work.budget.identity(value)

    def _place(self, index: int, key: Any) -> None:
        if index < len(self._keys):
            if self._keys[index] == key:
                return
            self._keys[index] = key
        else:
            self._keys.append(key)
        if key is not None:
            heappush(self._places.setdefault(key, []), index)

    def _first(self, key: Any) -> int | None:
        places = self._places.get(key, []) if key is not None else []
        while places and self._keys[places[0]] != key:
            heappop(places)  # this item has got another key by a merge
        return places[0] if places else None


MEMBERS_PER_STEP = 8
"""How many members of objects are copied in one step."""


def _pivot(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    """Make a row for each value of ``index``, with a member for each value of ``columns``."""
    config = work.setting("pivot_config", "field_mapping")
    wanted: dict[str, Any] = config if isinstance(config, dict) else {}
    index, columns, values = (text_of(wanted.get(name)) for name in ("index", "columns", "values"))
    rows: dict[bytes, dict[str, JSON]] = {}
    for item in items:
        key = _at(work, item, index) if index else None
        row = rows.setdefault(_key(work, key), {index: key} if index else {})
        row[write_value(_at(work, item, columns), work.budget)] = _at(work, item, values)
    return list(rows.values())


_OPERATIONS: dict[str, Callable[[NodeAttempt, Sequence[JSON]], list[JSON]]] = {
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
"""Operations whose result is a list even for a single item."""


async def _custom(work: NodeAttempt, items: Sequence[JSON]) -> list[JSON]:
    """Have the author's script transform each item."""
    script = _script(work)
    if not script.strip():
        return list(items)
    returned = await run_code(work.node, "code", script, list(items) or [work.inputs.get(RESULT)])
    for one in returned:
        if one.error is not None:
            raise NodeFailed("graph.code", one.error, details=one.details)
    return [one.value for one in returned]
